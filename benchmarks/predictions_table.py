"""Write docs/figures/predictions.md from the ledger: each prediction with its measurement."""

from __future__ import annotations

import math
import statistics
from typing import Any

from ledger import ROOT, Ledger, Row
from medians import median_interval

from fixes import CASES

EAGER = "eager"
LEDGER = Ledger("predictions", key=("device", "what", "case", "fix"))
DOCUMENT = ROOT / "docs" / "figures" / "predictions.md"
# A step this near its device's busy time is device-bound.
DEVICE_BOUND = 1.08
KNOWN = 0.15
# All of five rounds are on one side of the median in 1 of 16 cases: no range of theirs holds it at
# 95%.
FEWEST_KNOWN = 6
# By this share of the step the host was another one: what was predicted for it was for another.
CHANGED = 0.1


def rows_of(ledger: list[Row], device: str) -> list[Row]:
    """Predicted beside measured, newest of each, of one go where there is one that has both."""
    mine = [row for row in ledger if row["device"] == device]
    begun = {_go(row) for row in mine if (row["what"], row["fix"]) == ("measured", EAGER)}
    begun -= {go for go in begun if lacks_diagnosis([row for row in mine if _go(row) == go])}
    # A go that had no time for the unfixed step says nothing of the others.
    mine = [row for row in mine if row["what"] == "predicted" or _go(row) in begun]
    newest = {(row["what"], row["case"], row["fix"]): row for row in mine}
    # Goes had no number once: what was measured at one commit was.
    gone = {(row["what"], *_go(row), row["fix"]): row for row in mine}
    rows = []
    for case, (_, fixes) in CASES.items():
        for fix in fixes:
            clock = newest.get(("measured", case, fix))
            if clock is None:
                continue
            guess = newest.get(("predicted", case, fix))
            if "go" in clock:
                guess = gone.get(("predicted", *_go(clock), fix), guess)
            if guess is not None:
                eager = gone["measured", *_go(clock), EAGER]
                rows.append(_scored(case, fix, guess, eager, clock))
    return rows


def lacks_diagnosis(go: list[Row]) -> bool:
    """Whether a go of one model was cut before its end, as those went that diagnosed first: where
    the unfixed step took another time on the clock, it was diagnosed once more after it.
    """
    if any("round" in row for row in go):
        return False
    said = [row["wall_ns"] for row in go if row["what"] == "predicted"]
    timed = [row["rounds_ns"] for row in go if (row["what"], row["fix"]) == ("measured", EAGER)]
    if not said or not timed or not timed[-1] or len(set(said)) > 1:
        return False
    return bool(abs(said[-1] / statistics.median(timed[-1]) - 1) > CHANGED)


def _go(row: Row) -> tuple[Any, ...]:
    return row["case"], row.get("go") or row["commit"]


def _scored(
    case: str, fix: str, guess: dict[str, Any], eager: dict[str, Any], clock: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case, "fix": fix, "problem": clock["problem"]}
    factor = guess.get("factor", 1)
    said = guess.get("saving_ns")
    if said is None:
        # Made before that was said: what the step as it was diagnosed is longer by.
        wall, fixed = factor * guess["wall_ns"], guess["predicted_ns"]
        said = {"low": wall - fixed["high"], "high": wall - fixed["low"]}
        said["expected"] = wall - fixed["expected"]
    row["said"] = (said["low"], said["expected"], said["high"])
    if not clock["rounds_ns"] or not eager["rounds_ns"]:
        return row
    before, after = eager["rounds_ns"], clock["rounds_ns"]
    middle = statistics.median(after)
    row["before"], row["after"] = factor * statistics.median(before), middle
    row["saved"], doubt = saving(eager, clock, factor)
    row["known_within"] = doubt / abs(row["saved"]) if row["saved"] else float("inf")
    row["inside"] = row["said"][0] <= row["saved"] <= row["said"][2]
    row["error"] = abs(row["said"][1] - row["saved"]) / abs(row["saved"]) if row["saved"] else None
    row["device_bound"] = bool(clock["busy_ns"]) and middle < DEVICE_BOUND * clock["busy_ns"]
    row["width"] = (row["said"][2] - row["said"][0]) / row["before"]
    return row


def saving(eager: Row, clock: Row, factor: int = 1) -> tuple[float, float]:
    """What the clock says was saved, and how far that may be off."""
    before, after = eager["rounds_ns"], clock["rounds_ns"]
    if "processes" not in clock:
        # Three processes each, one after the other: how older rows were measured.
        doubt = (factor**2 * _variance(before) + _variance(after)) ** 0.5
        return factor * statistics.median(before) - statistics.median(after), doubt
    if min(len(before), len(after)) < FEWEST_KNOWN:
        return factor * statistics.median(before) - statistics.median(after), float("inf")
    beside = before[clock["first_round"] :][: len(after)]
    if len(beside) == len(after):
        pairs = zip(beside, after, strict=True)
        low, middle, high = median_interval([factor * a - b for a, b in pairs])
        return middle, (high - low) / 2
    # It had the device's memory to itself, after the unfixed step.
    (low, middle, high), (least, mine, most) = median_interval(before), median_interval(after)
    doubt = ((factor * (high - low)) ** 2 + (most - least) ** 2) ** 0.5 / 2
    return factor * middle - mine, doubt


def _variance(rounds: list[float]) -> float:
    """The interval of the median, as that of a mean: there are few rounds."""
    return statistics.variance(rounds) / len(rounds) if len(rounds) > 1 else 0.0


def table() -> None:
    ledger = LEDGER.rows()
    parts = [HEAD]
    for where in sorted({row["device"] for row in ledger}):
        rows = rows_of(ledger, where)
        parts += [f"## {where}\n", _summary(rows), "", _heading()]
        parts += [_line(row) for row in rows]
        parts.append("")
    DOCUMENT.write_text("\n".join(parts) + "\n")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


HEAD = """# Predicted and measured savings

Generated by `python benchmarks/predictions.py go` and `table`. Times in ms.

**Method.** Predictions come from one diagnosis of the unfixed step. Measurements come from fresh
processes without a profiler: one for the unfixed step and one for each fix. All of them exist at
the same time and take turns of a few steps (about 0.15 s), round after round, because a shared host
changes its speed within seconds. Older rows are three fresh processes each, one after the other.

- `saved`: unfixed minus fixed step time of the same round, median over the rounds. For a larger
  batch: as many unfixed steps as contain the same samples.
- `known`: uncertainty of the measurement, half of the 95% interval of a block bootstrap over the
  rounds, relative to the saving (older rows: the standard error). Rows above 15%, and rows with
  fewer than six rounds, count for coverage only. It does not include the difference between two
  processes of the same program (1% to 2% of the step on a CPU whose speed changed by 1.7).
- `inside`: whether the measured saving is inside the predicted interval.

**Which rows count.** The newest measurement of each fix, with the unfixed step and the prediction
of the same session if there was one. Older rows stay in the ledger, better or worse. The
predictions therefore come from several versions of boundby, each recorded with its commit. Some
changes between these versions were made after earlier measurements of the same models had been
seen. Rows of larger batches are from versions that benchmarked operators at the larger size; since
then such steps are predicted from the machine's curves, which these rows do not test.

**Drift of the host.** A host may take a third longer for the same step a minute later (Swin alone,
not observed: 36 ms, then 46 ms), which changes the saving. The newest sessions (`round` in the
ledger) diagnose in the middle of the rounds, so that the saving and its uncertainty cover both
halves. Earlier sessions diagnosed first, and again at the end if the unfixed step had changed by
more than a tenth; a session that was stopped before that is not counted. Swin's first session was
such a case: the step took 48 ms when measured and 36 and 40 ms when diagnosed. Its savings had an
uncertainty of 12% to 15% and were predicted at half of their value; its device-bound steps were
predicted within 2%. With it instead of the newer session the errors would be 9.1% over all and 9.1%
where device-bound.

**Intervals.** Newer predictions (`saving_ns` in the ledger) have an interval for the saving itself,
which includes a slower or faster host for the unfixed step. Older ones include it only for the
fixed step. Some older predictions were made on another machine of the same kind, whose host may be
a fifth faster or slower. ConvNeXt's newest rows were measured first and predicted minutes later on
the same machine.
"""


def _heading() -> str:
    columns = [
        "model",
        "fix",
        "before",
        "after",
        "saved",
        "known",
        "predicted saving",
        "error",
        "inside",
        "bound by",
    ]
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def _line(row: dict[str, Any]) -> str:
    low, middle, high = (f"{ns / 1e6:.1f}" for ns in row["said"])
    said = f"{middle} ({low} to {high})"
    if "saved" not in row:
        return (
            f"| {row['case']} | {row['fix']} | - | - | - | - | {said} | - | - | {row['problem']} |"
        )
    within = row["known_within"]
    known = f"{within:.0%}" if math.isfinite(within) else "-"
    error = f"{row['error']:.0%}" if row["known_within"] <= KNOWN else f"({row['error']:.0%})"
    bound = "device" if row["device_bound"] else "host"
    return (
        f"| {row['case']} | {row['fix']} | {row['before'] / 1e6:.1f} | {row['after'] / 1e6:.1f} |"
        f" {row['saved'] / 1e6:.1f} | {known} | {said} | {error} |"
        f" {'yes' if row['inside'] else 'no'} | {bound} |"
    )


def _summary(rows: list[dict[str, Any]]) -> str:
    measured = [row for row in rows if "saved" in row]
    scored = [row for row in measured if row["known_within"] <= KNOWN]
    bound = [row["error"] for row in scored if row["device_bound"]]
    inside = [row["inside"] for row in measured]
    if not scored:
        return "Nothing measured well enough to be scored yet."
    return (
        f"{len(measured)} fixes measured, {len(scored)} of them known within {KNOWN:.0%}. Median"
        f" error of the time saved: {statistics.median(row['error'] for row in scored):.1%} over"
        f" all, {statistics.median(bound) if bound else float('nan'):.1%} where the fixed step is"
        f" device-bound ({len(bound)}). Inside the interval: {sum(inside)} of {len(inside)}"
        f" ({sum(inside) / len(inside):.1%}); median width of the intervals"
        f" {statistics.median(row['width'] for row in measured):.0%} of the unfixed step."
    )
