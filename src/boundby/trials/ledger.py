"""All processes of one experiment so far, and what they say about each combination of fixes."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import Numerics, Outcome, Peak, Speedup
from boundby.trials import numerics, speedup
from boundby.trials.observation import Notes, Observed

Arm = tuple[str, ...]
BASELINE: Arm = ()
_UNKNOWN_PEAK = Peak()

# Less than this is not worth a change to anybody's script.
_WORTHWHILE = 1.005
# Where processes differ by more than this, fewer runs than these can fall on either side by chance:
# of three and three, all of one above all of the other, in one of twenty.
_UNSTEADY = 0.08
_FEWEST_UNSTEADY = 4
_FEWEST = 2
_DWARFED = 2.0
# An interval from no gain to more than this leaves the question open.
_OPEN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of one arm."""

    outcome: Outcome
    why: str
    runs: int = 0
    speedup: Speedup | None = None
    numerics: Numerics | None = None
    peak: Peak = _UNKNOWN_PEAK
    log: str | None = None

    @property
    def held(self) -> bool:
        return self.outcome == "kept"

    @property
    def promises(self) -> bool:
        """Whether it may hold once there are enough runs: worth combining when time is short."""
        return self.computes_right and self.speedup is not None and self.speedup.low > 1

    @property
    def computes_right(self) -> bool:
        return self.numerics is not None and self.numerics.ok


class Ledger:
    """Append-only; every question is answered from the processes alone, so it can be resumed."""

    def __init__(
        self,
        observed: Sequence[Observed] = (),
        *,
        precisions: Mapping[str, str | None] | None = None,
        environments: Collection[str] = (),
        preparations: Mapping[str, float] | None = None,
    ) -> None:
        """`environments`: treatments that leave no trace in the program itself."""
        self.observed = list(observed)
        self._precisions = precisions or {}
        self._environments = environments
        self._preparations = preparations or {}
        self._known: dict[tuple[frozenset[str], int], Result] = {}

    def add(self, observed: Observed) -> None:
        self.observed.append(observed)

    def tried(self, arm: Arm) -> list[Observed]:
        """Every process of an arm, whatever became of it."""
        wanted = frozenset(arm)
        return [one for one in self.observed if not one.reference and frozenset(one.arm) == wanted]

    def timed(self, arm: Arm) -> list[Observed]:
        return [one for one in self.tried(arm) if one.problem is None and one.samples_ns]

    @property
    def reference(self) -> Notes | None:
        found = [one for one in self.observed if one.reference and one.problem is None]
        return found[0].notes if found else None

    @property
    def has_dropout(self) -> bool:
        baseline = self.timed(BASELINE)
        return baseline[0].notes.has_dropout if baseline else True

    def seconds(self, arm: Arm) -> float:
        """How long a process of an arm is going to take, going by those before."""
        own = [one.seconds for one in self.tried(arm)]
        if own:
            return own[-1]
        parts = [one.seconds for key in arm for one in self.tried((key,))[-1:]]
        baseline = [one.seconds for one in self.tried(BASELINE)]
        new = max((self._preparations.get(key, 0.0) for key in arm), default=0.0)
        return max([*parts, *(1.2 * one + new * (not parts) for one in baseline)], default=30.0)

    def median_ns(self, arm: Arm) -> float | None:
        medians = [one.median_ns for one in self.timed(arm)]
        return statistics.median(medians) if medians else None

    def result(self, arm: Arm) -> Result:
        key = (frozenset(arm), len(self.observed))
        if key not in self._known:
            self._known[key] = self._judge(arm)
        return self._known[key]

    def _judge(self, arm: Arm) -> Result:
        tried, timed, base = self.tried(arm), self.timed(arm), self.timed(BASELINE)
        if not tried or not base:
            return Result(outcome="not run", why="its turn did not come")
        log = tried[-1].log
        problem = next((one.problem for one in tried if one.problem), None)
        if problem is None and not timed:
            problem = "it ended before its steps could be timed"
        if problem is not None:
            return Result(outcome="failed", why=problem, log=log)
        if not any(one.touched for one in timed) and not self._environments_in(arm):
            return Result(outcome="not run", why="it found nothing in the script to change")
        recompiled = statistics.median(one.graphs_while_clean for one in timed)
        if recompiled > max(one.graphs_while_clean for one in base):
            words = f"it recompiles for ever: {recompiled:.0f} graphs in {len(timed[0].samples_ns)}"
            return Result(outcome="failed", why=f"{words} steps that should be steady", log=log)
        return self._compared(arm, base, timed)

    def _compared(self, arm: Arm, base: list[Observed], timed: list[Observed]) -> Result:
        checked = numerics.judge(
            [one.notes for one in base],
            [one.notes for one in timed],
            self.reference,
            self._precision(arm),
        )
        faster = speedup.estimate(
            [one.samples_ns for one in base], [one.samples_ns for one in timed], self.spread()
        )
        runs = min(len(base), len(timed))
        outcome, why = _outcome(faster, checked, runs, float(self.spread().std()))
        return Result(
            outcome=outcome,
            why=why,
            runs=len(timed),
            speedup=faster,
            numerics=checked,
            peak=Peak(before=_peak(base), after=_peak(timed)),
            log=timed[-1].log,
        )

    def spread(self) -> speedup.Floats:
        arms = {frozenset(one.arm) for one in self.observed if not one.reference}
        groups = [
            [one.samples_ns for one in self.timed(tuple(arm))] for arm in sorted(arms, key=sorted)
        ]
        return speedup.scatter(groups)

    def _precision(self, arm: Arm) -> str | None:
        """The coarsest of an arm's precisions."""
        order = ("bfloat16", "float16", "tf32", "float32")
        known = {self._precisions.get(key) for key in arm}
        return next((name for name in order if name in known), None)

    def _environments_in(self, arm: Arm) -> bool:
        return any(key in self._environments for key in arm)


def _outcome(faster: Speedup, checked: Numerics, runs: int, spread: float) -> tuple[Outcome, str]:
    if not checked.ok:
        return "wrong numbers", checked.why
    if faster.median < 1 and faster.high < 1:
        return "no gain", "it is slower"
    if faster.low <= 1 and faster.high > _OPEN:
        words = f"not to be told: between {faster.low:.2f}x and {faster.high:.2f}x, by how much"
        return "no gain", f"{words} processes differ; a quieter machine or a larger budget tells"
    if faster.low <= 1 or faster.median < _WORTHWHILE:
        return "no gain", "no difference that processes do not differ by anyway"
    # Where processes differ much, few of them may agree by chance, unless the gain dwarfs that.
    unsteady = spread > _UNSTEADY and faster.low < 1 + _DWARFED * spread
    if runs < (_FEWEST_UNSTEADY if unsteady else _FEWEST):
        return "no gain", (
            f"{runs} runs of each are too few to tell, with processes that differ by {spread:.0%}"
        )
    return "kept", checked.why


def _peak(observed: Sequence[Observed]) -> float | None:
    peaks = [one.peak_bytes for one in observed if one.peak_bytes is not None]
    return statistics.median(peaks) if peaks else None
