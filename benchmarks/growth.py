"""Twice the batch, operator by operator: as predicted from a step with one, and as profiled.

    python benchmarks/growth.py unet convnext

Each step is diagnosed in a fresh process. What `boundby run` says of twice the batch is taken apart
into what it says of each operator, and that is held against the larger step's own operators: where
the prediction is off, this says whose fault it is. Operators that one of the steps has and the
other has not are left out, and their sums are printed. Nothing is kept.
"""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher
from typing import Any

from fixes import CASES
from looks import for_each_model, look

TWICE = "batch 2x"
_ROWS = 16


def operators(picture: Any) -> list[dict[str, Any]]:
    """A step's operators in order, each with its time, and that with twice the batch."""
    from boundby.remedies import growth

    timed, times = growth.timed_with(picture, 2), growth.times_with(picture, 2, growth.LIKELY)
    alone: dict[int, list[float]] = {}
    for pair, indices in growth.costliest(picture, 2).items():
        both = growth.timed_alone(picture, *pair, picture.works[indices[0]]) or ((0, 0), (0, 0))
        alone |= {index: [*both[0], *both[1]] for index in indices}
    return [
        {
            "name": work.name,
            "ns": work.ns,
            "twice_ns": times[index],
            "timed": index in timed,
            "alone": alone.get(index, [0.0] * 4),
        }
        for index, work in enumerate(picture.works)
    ]


def compare(name: str) -> None:
    base, fixes = CASES[name]
    if TWICE not in fixes:
        print(f"{name}: no larger batch of it is known (benchmarks/fixes.py)")
        return
    both = (base, f"{base} {fixes[TWICE][0]}")
    one, two = (look(__file__, words.split()) for words in both)
    names = [[row["name"] for row in rows] for rows in (one, two)]
    blocks = SequenceMatcher(None, *names, autojunk=False).get_matching_blocks()
    pairs = [(one[a + i], two[b + i]) for a, b, size in blocks for i in range(size)]
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 8)
    for small, large in pairs:
        how = "timed" if small["timed"] else "curves"
        values = (1, small["ns"], small["twice_ns"], large["ns"], *small["alone"])
        for key in ((small["name"], how), ("all", how), ("all", "")):
            sums[key] = [mine + value for mine, value in zip(sums[key], values, strict=True)]
    print(f"{name}: ms with one batch, with two as predicted and as profiled, what it is off by;")
    print("by itself with one, from its own caches and from others', and with two")
    ranked = sorted(sums.items(), key=lambda row: (row[0][0] != "all", -abs(row[1][2] - row[1][3])))
    for (operator, how), (count, *times) in ranked[:_ROWS]:
        before, said, seen, *alone = (f"{ns / 1e6:8.3f}" for ns in times)
        off = f"{(times[1] - times[2]) / 1e6:+8.3f}"
        print(before, said, seen, off, " ", *alone, f" {operator} x{count:.0f} {how}", flush=True)
    lost = [sum(row["ns"] for row in rows) for rows in (one, two)]
    matched = [sum(pair[place]["ns"] for pair in pairs) for place in (0, 1)]
    left = [(all_of - mine) / 1e6 for all_of, mine in zip(lost, matched, strict=True)]
    print(f"left out: {left[0]:.3f} of the one, {left[1]:.3f} of the other")


if __name__ == "__main__":
    for_each_model(__doc__, operators, compare)
