"""What the runs of one fix come to, in a word and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from boundby.model.diagnosis import Numerics, Outcome, Peak, Speedup

_UNKNOWN_PEAK = Peak()

# Less than this is not worth a change to anybody's script.
_WORTHWHILE = 1.005
# Where processes differ by more than this, fewer runs than these can fall on either side by chance:
# of three and three, all of one above all of the other, in one of twenty.
_UNSTEADY = 0.08
_FEWEST_UNSTEADY = 4
_FEWEST = 2
_DWARFED = 2.0
# One run between two baselines is enough for a gain of so many spreads, and of so much at least:
# on a machine with other work, a first process was seen to take 1.45 times as long as the next.
_PLAIN_SPREADS, _PLAIN = 5.0, 1.3
# An interval from no gain to more than this leaves the question open.
_OPEN = 1.25
OPEN_WORD = "open:"
_FEW = f"{OPEN_WORD} only"


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
    open: bool = False  # more runs may tell
    lacking: int = 0  # how many more, of each, would make a gain that was seen sure

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


def outcome_of(
    faster: Speedup, checked: Numerics, runs: int, spread: float, *, between: bool
) -> tuple[Outcome, str]:
    """`runs` of each; `spread` is by how much processes of the script differ."""
    if not checked.ok:
        return "wrong numbers", checked.why
    if faster.median < 1 and faster.high < 1:
        return "no gain", "it is slower"
    if faster.low <= 1 and faster.high > _OPEN:
        return "no gain", (
            f"{OPEN_WORD} runs of this script differ by {spread:.0%} here, too much to tell "
            f"anything from {faster.low:.2f}x to {faster.high:.2f}x; more time may, or a quieter "
            "machine"
        )
    if faster.low <= 1 or faster.median < _WORTHWHILE:
        return "no gain", (
            f"{faster.low:.2f}x to {faster.high:.2f}x may be nothing: runs of this script differ "
            f"by {spread:.0%} anyway"
        )
    plain = faster.low > max(_PLAIN, 1 + _PLAIN_SPREADS * spread)
    if plain and between:
        return "kept", checked.why
    if runs < fewest(faster, spread):
        return "no gain", f"{_FEW} {_times(runs)}, where runs differ by {spread:.0%}"
    return "kept", checked.why


def fewest(faster: Speedup, spread: float) -> int:
    """Where processes differ much, few of them may agree by chance, unless the gain dwarfs that."""
    unsteady = spread > _UNSTEADY and faster.low < 1 + _DWARFED * spread
    return _FEWEST_UNSTEADY if unsteady else _FEWEST


def is_short_of_runs(why: str) -> bool:
    """Whether a gain was seen that only wants more runs."""
    return why.startswith(_FEW)


def _times(runs: int) -> str:
    return "one run of each" if runs == 1 else f"{runs} runs of each"
