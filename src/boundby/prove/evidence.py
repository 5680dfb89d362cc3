"""Everything measured so far, as a value: written by the script's process, read by boundby's.

A later process of the same script continues from it, so that nothing is measured twice.
"""

from __future__ import annotations

import math
import statistics
from typing import Literal

import msgspec

from boundby.model.proof import Numerics, Outcome, Speedup
from boundby.prove.confidence import MIN_ROUNDS, NO_EFFECT, WORTHWHILE, speedup_of
from boundby.prove.sites import ObjectSite, ProgramSites

Variant = tuple[str, ...]  # keys of fixes, in the order in which they are applied
BASELINE: Variant = ()

# A fix that is this much slower twice is not measured a third time.
_CLEARLY_SLOWER = 0.5
Decision = Literal["faster", "no gain", "open"]


class Comparison(msgspec.Struct, kw_only=True):
    """A variant measured in alternation with another that it would replace."""

    variant: Variant
    against: Variant
    log_ratios: list[float] = []  # one of each round
    before_ns: list[float] = []  # median step of each round's blocks
    after_ns: list[float] = []
    peak_bytes_before: float | None = None
    peak_bytes_after: float | None = None

    @property
    def speedup(self) -> Speedup | None:
        return speedup_of(self.log_ratios)

    @property
    def decision(self) -> Decision:
        speedup = self.speedup
        if speedup is None:
            ratios = self.log_ratios
            slower = len(ratios) == MIN_ROUNDS - 1 and max(ratios) < math.log(_CLEARLY_SLOWER)
            return "no gain" if slower else "open"
        if speedup.low > WORTHWHILE:
            return "faster"
        return "no gain" if speedup.high < NO_EFFECT else "open"

    @property
    def middle(self) -> float:
        """The measured ratio so far; 1 before the first round."""
        return math.exp(statistics.median(self.log_ratios)) if self.log_ratios else 1.0

    @property
    def saved_ns(self) -> float:
        """The time saved per step, as far as it is known."""
        if not self.log_ratios:
            return 0.0
        return statistics.median(self.before_ns) - statistics.median(self.after_ns)


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a variant that does not follow from its time."""

    outcome: Outcome
    why: str
    log: str | None = None
    wants_time: bool = False  # a larger budget would allow measuring it


class Evidence(msgspec.Struct, kw_only=True):
    """Everything measured of the variants of one script."""

    comparisons: list[Comparison] = []
    rulings: dict[Variant, Ruling] = {}
    checked: dict[Variant, Numerics] = {}
    chosen: Variant = BASELINE
    preparation_s: dict[Variant, float] = {}  # of each first use
    changes_made: dict[str, list[str]] = {}  # by fix: what it has changed, in words
    objects: dict[str, list[ObjectSite]] = {}  # by fix
    sites: ProgramSites | None = None
    framework: str | None = None  # of the program, once its steps were seen
    step_ns: float | None = None
    steps: int = 0  # taken by all processes
    seconds: float = 0.0  # of live measurement, all processes together
    start_s: float | None = None  # from the start of the process to the first step
    free_cores: float | None = None  # while the live program ran
    timed_ns: list[float] = []  # of a process that measures one variant
    timed_peak_bytes: float | None = None
    left_out: dict[str, str] = {}  # by fix: why that process could not apply it
    first_kept_s: float | None = None
    running: Variant = BASELINE  # what is switched on now
    preparing: bool = False  # its first use, such as compiling
    measure_until: float | None = None  # on the monotonic clock; later is the final check's time
    now: str = ""
    done: bool = False
    out_of_time: bool = False  # measuring ended so that what was chosen can be checked
    ended: str | None = None  # why it stopped before it was done
    script_ended: bool = False  # by itself, without an error
    failed_itself: bool = False  # boundby did, not the script

    def progress(self) -> str:
        """What is running, and its result so far."""
        measured = [
            comparison
            for comparison in self.comparisons
            if comparison.variant == self.running and comparison.log_ratios
        ]
        if not measured:
            return self.now
        rounds = len(measured[-1].log_ratios)
        so_far = f"{measured[-1].middle:.2f}x after {rounds} round{'s' * (rounds > 1)}"
        return f"{self.now}: {so_far}"

    def comparison_of(self, variant: Variant, against: Variant) -> Comparison:
        for comparison in self.comparisons:
            if comparison.variant == variant and comparison.against == against:
                return comparison
        made = Comparison(variant=variant, against=against)
        self.comparisons.append(made)
        return made


def comparisons_of(evidence: Evidence, key: str) -> list[Comparison]:
    """Comparisons of this fix with what it was added to."""
    return [
        comparison
        for comparison in evidence.comparisons
        if comparison.log_ratios
        and comparison.variant
        and comparison.variant[-1] == key
        and key not in comparison.against
    ]


def chain_of(evidence: Evidence) -> list[Comparison]:
    """The comparisons that led from the unchanged program to the chosen fixes, the first first."""
    chain: list[Comparison] = []
    variant = evidence.chosen
    while variant and len(chain) <= len(evidence.comparisons):
        found = next(
            (
                comparison
                for comparison in evidence.comparisons
                if comparison.variant == variant and comparison.decision == "faster"
            ),
            None,
        )
        if found is None:
            break
        chain.insert(0, found)
        variant = found.against
    return chain


def adding_comparison(evidence: Evidence, key: str) -> Comparison | None:
    """The comparison after which a fix was added to the chosen ones."""
    return next((one for one in chain_of(evidence) if one.variant[-1] == key), None)
