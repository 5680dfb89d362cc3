"""Whole processes of the script in turn: the last word, and what cannot be switched live."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from boundby.model.diagnosis import Speedup
from boundby.prove.candidate import Candidate
from boundby.prove.confidence import FEWEST_ROUNDS, speedup_of
from boundby.prove.evidence import Arm, Evidence
from boundby.prove.launch import Setting, launch

_STEPS = 12
_MOST_PAIRS = 5
# Standard deviation between processes of one script: 10% from lowest to highest was seen among a
# dozen of them, which is three standard deviations.
_PROCESS_SD = 0.03
# So close to its end, no process is started.
_MARGIN = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What one process runs: fixes switched on in it, fixes of its start, another text.

    `may_do_without`: what a process cannot apply is left out of it and of those that follow.
    """

    name: str
    arm: Arm = ()
    applied: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    may_do_without: bool = False

    def without(self, left_out: Collection[str]) -> Variant:
        return replace(
            self,
            arm=tuple(key for key in self.arm if key not in left_out),
            applied=[key for key in self.applied if key not in left_out],
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is changed: the script as it is."""
        return not (self.arm or self.applied or self.sources)


@dataclass(slots=True, kw_only=True)
class Turns:
    """Two variants measured in processes that ran one after the other."""

    before_ns: list[float] = field(default_factory=list)
    after_ns: list[float] = field(default_factory=list)
    peak_before: float | None = None
    peak_after: float | None = None
    problem: str | None = None
    log: str | None = None
    late: bool = False  # the budget ended while a process ran
    left_out: dict[str, str] = field(default_factory=dict)  # by fix: why it was not applied

    @property
    def speedup(self) -> Speedup | None:
        ratios = [
            math.log(before / after)
            for before, after in zip(self.before_ns, self.after_ns, strict=False)
        ]
        if not ratios:
            return None
        if len(ratios) >= FEWEST_ROUNDS:
            return speedup_of(ratios)
        # Of few processes: by how much processes of a script usually differ.
        middle = statistics.fmean(ratios)
        half = 1.96 * math.sqrt(2 / len(ratios)) * _PROCESS_SD
        return Speedup(
            low=math.exp(middle - half), median=math.exp(middle), high=math.exp(middle + half)
        )


@dataclass(slots=True, kw_only=True)
class FreshProcesses:
    """Runs variants until the time is over."""

    setting: Setting
    candidates: Sequence[Candidate]
    place: Callable[[], Path]
    ends_at: float
    report: Callable[[str], None] = lambda _: None
    wrote: list[str] = field(default_factory=list)
    _a_process_s: float = 0.0

    def expect(self, seconds: float) -> None:
        """How long a process is going to take, before one was seen."""
        self._a_process_s = max(self._a_process_s, seconds)

    def has_time(self, processes: int) -> bool:
        return time.monotonic() + processes * _MARGIN * self._a_process_s < self.ends_at

    def in_turn(
        self, before: Variant, after: Variant, *, pairs: int = _MOST_PAIRS, spared: int = 0
    ) -> Turns:
        """Pairs of processes while there is time for them and for those to be `spared`."""
        turns = Turns()
        for pair in range(pairs):
            if not self.has_time(2 + spared):
                break
            # Neither is always the first: a machine that warms up would favour the other.
            order = [(before, True), (after, False)]
            for variant, is_before in order if pair % 2 == 0 else order[::-1]:
                if is_before or not variant.may_do_without:
                    is_measured = self._run(variant, turns, is_before=is_before)
                else:
                    is_measured = self._run_what_can_be(variant, turns)
                if not is_measured:
                    return turns
            if self._is_clear(turns):
                break
        return turns

    def _is_clear(self, turns: Turns) -> bool:
        found = turns.speedup
        return found is not None and len(turns.after_ns) >= 2 and found.low > 1.02

    def _run_what_can_be(self, variant: Variant, turns: Turns) -> bool:
        """A process that fails with what is applied from outside is followed by one without it."""
        is_measured = self._run(variant.without(turns.left_out), turns, is_before=False)
        left = variant.without(turns.left_out)
        outside = [*left.arm, *left.applied]
        if is_measured and left.is_plain:
            turns.after_ns.clear()
            turns.problem = "nothing of it could be written or applied in a process of its own"
            return False
        if is_measured or turns.late or not outside:
            return is_measured
        bare = left.without(outside)
        if bare.is_plain or not self.has_time(1):
            return False
        turns.left_out |= dict.fromkeys(outside, turns.problem or "")
        turns.after_ns.clear()  # measured with what is now left out
        turns.before_ns = turns.before_ns[-1:]
        turns.problem = turns.log = None
        return self._run(bare, turns, is_before=False)

    def _run(self, variant: Variant, turns: Turns, *, is_before: bool) -> bool:
        self.report(variant.name)
        began = time.monotonic()
        launched = launch(
            self.setting,
            {
                "deadline": self.ends_at,
                "candidates": self.candidates,
                "timed": {"arm": variant.arm, "steps": _STEPS},
                "applied": list(variant.applied),
                "sources": dict(variant.sources),
            },
            name=variant.name.replace(" ", "-"),
            cwd=self.place(),
            kill_at=self.ends_at,
            environment=variant.environment,
        )
        self.wrote += launched.wrote
        evidence = (
            msgspec.json.decode(launched.result, type=Evidence) if launched.result else Evidence()
        )
        if not evidence.timed_ns:
            ruled = next((one.why for one in evidence.ruled.values()), None)
            late = "the budget ended while it ran" if launched.late else None
            turns.late = launched.late
            turns.problem = late or ruled or evidence.ended or launched.problem or "no step ended"
            turns.log = str(launched.log)
            return False
        self._a_process_s = max(self._a_process_s, time.monotonic() - began)
        middle = statistics.median(evidence.timed_ns)
        peak = evidence.timed_peak_bytes
        turns.left_out |= evidence.left_out
        if is_before:
            turns.before_ns.append(middle)
            turns.peak_before = peak
        else:
            turns.after_ns.append(middle)
            turns.peak_after = peak
        return True
