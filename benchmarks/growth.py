"""Larger batches, operator by operator: as predicted from a step with one, and as profiled.

    python benchmarks/growth.py unet convnext

Each step is diagnosed in a fresh process. What `boundby run` says of a larger batch is taken apart
into what it says of each operator, and that is held against the larger step's own operators: where
the prediction is off, this says whose fault it is. Operators that one of the steps has and the
other has not are left out, and their sums are printed. Nothing is kept.
"""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher
from typing import Any

from looks import for_each_model, look

from fixes import CASES

FACTORS = (2, 4)
_ROWS = 16


def operators(step_model: Any) -> list[dict[str, Any]]:
    """A step's operators in order, each with its time, and that with larger batches."""
    from boundby.step import batch_growth as growth

    found: list[dict[str, Any]] = [
        {"name": work.name, "ns": work.ns, "larger": {}} for work in step_model.op_records
    ]
    for factor in FACTORS:
        timed = growth.timed_with(step_model, factor)
        times = growth.times_with(step_model, factor, growth.LIKELY)
        alone: dict[int, list[float]] = {}
        for pair, indices in growth.costliest(step_model, factor).items():
            both = growth.timed_alone(step_model, *pair, step_model.op_records[indices[0]]) or (
                (0, 0),
                (0, 0),
            )
            alone |= {index: [*both[0], *both[1]] for index in indices}
        for index, row in enumerate(found):
            how = "timed" if index in timed else "curves"
            row["larger"][factor] = [how, times[index], *alone.get(index, [0.0] * 4)]
    return found


def compare(name: str) -> None:
    base, fixes = CASES[name]
    one = look(__file__, base.split())
    for factor in FACTORS:
        fix = f"batch {factor}x"
        if fix not in fixes:
            print(f"{name}: no {fix} of it is known (benchmarks/fixes.py)")
            continue
        larger = look(__file__, f"{base} {fixes[fix][0]}".split())
        print(f"{name}, {fix}: ms with one batch, with the larger as predicted and as profiled,")
        print("what it is off by; by itself with one, from its own caches and from others', and so")
        print("with the larger (on a CUDA device those of four times the batch are not asked for)")
        _print(one, larger, str(factor))


def _print(one: list[dict[str, Any]], larger: list[dict[str, Any]], factor: str) -> None:
    names = [[row["name"] for row in rows] for rows in (one, larger)]
    blocks = SequenceMatcher(None, *names, autojunk=False).get_matching_blocks()
    pairs = [(one[a + i], larger[b + i]) for a, b, size in blocks for i in range(size)]
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 8)
    for small, large in pairs:
        how, said, *alone = small["larger"][factor]
        values = (1, small["ns"], said, large["ns"], *alone)
        for key in ((small["name"], how), ("all", how), ("all", "")):
            sums[key] = [mine + value for mine, value in zip(sums[key], values, strict=True)]
    ranked = sorted(sums.items(), key=lambda row: (row[0][0] != "all", -abs(row[1][2] - row[1][3])))
    for (operator, how), (count, *times) in ranked[:_ROWS]:
        before, said, seen, *alone = (f"{ns / 1e6:8.3f}" for ns in times)
        off = f"{(times[1] - times[2]) / 1e6:+8.3f}"
        print(before, said, seen, off, " ", *alone, f" {operator} x{count:.0f} {how}", flush=True)
    lost = [sum(row["ns"] for row in rows) for rows in (one, larger)]
    matched = [sum(pair[place]["ns"] for pair in pairs) for place in (0, 1)]
    left = [(all_of - mine) / 1e6 for all_of, mine in zip(lost, matched, strict=True)]
    print(f"left out: {left[0]:.3f} of the one, {left[1]:.3f} of the other", flush=True)


if __name__ == "__main__":
    for_each_model(__doc__, operators, compare)
