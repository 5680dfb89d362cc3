"""docs/proofs.md from the ledger."""

from __future__ import annotations

import statistics
from typing import Any

from ledger import ROOT, Row, TrialStore

LEDGER = TrialStore("proofs", key=("kind", "name", "device"))
DOCUMENT = ROOT / "docs" / "proofs.md"


def table() -> None:
    rows = LEDGER.newest()
    parts = [
        "# Proofs\n",
        "Made by `python benchmarks/proofs.py run NAME`, `... hand NAME` and `... table`: scripts",
        "untouched, every fix applied from outside in its own processes, in turn with the script",
        "as it is. Speed-ups with their 95% intervals; predicted from one diagnosis before.",
        "What it came to was then timed in turn with the best by hand, in another run, on a host",
        "that may have been slower: those two times go together, and tell of its speed.\n",
    ]
    for where in sorted({where for _, _, where in rows}):
        parts += [f"## {where}\n", *summaries(rows, where), "", *changes_of_nothing(rows, where)]
        for (kind, name, there), row in rows.items():
            if kind == "prove" and there == where:
                parts += [*read_profiler_tree(name, row), ""]
    DOCUMENT.write_text("\n".join(parts) + "\n")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def changes_of_nothing(rows: dict[tuple[Any, ...], Row], where: str) -> list[str]:
    lines = []
    for (kind, name, there), row in rows.items():
        if kind == "aa" and there == where:
            medians = [one["speedup"]["median"] for one in row["proofs"] if one["speedup"]]
            lines.append(
                f"A change of nothing to {name}, {row['tries']} times with a budget of "
                f"{row['budget']}: no gain was seen {row['tries'] - row['kept']} times "
                f"({len(medians)} had time for both sides); measured "
                f"from {min(medians):.2f}x to {max(medians):.2f}x.\n"
            )
    return lines


def summaries(rows: dict[tuple[Any, ...], Row], where: str) -> list[str]:
    lines = [
        "| script | before ms | after ms | speed-up | kept | in turn ms | best by hand ms "
        "| of its speed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (kind, name, there), row in rows.items():
        if kind != "prove" or there != where:
            continue
        final, by_hand = best(row), rows.get(("hand", name, where))
        if final is None:
            lines.append(f"| {name} | {row['wall_ms']:.1f} | | 1 | nothing held | | | |")
            continue
        compared = "| | | |"
        if by_hand is not None:
            low, middle, high = by_hand["speed_of_hand"]
            ours, theirs = (statistics.median(by_hand[f"{who}_ms"]) for who in ("prove", "hand"))
            compared = f"| {ours:.2f} | {theirs:.2f} | {middle:.0%} ({low:.0%} to {high:.0%}) |"
        after = statistics.median(final["after_ms"])
        before = after * final["speedup"]["median"]
        lines.append(
            f"| {name} | {before:.2f} | {after:.2f} | {ratio(final['speedup'])} "
            f"| {final['treatment']} {compared}"
        )
    return lines if len(lines) > 2 else []


def read_profiler_tree(name: str, row: dict[str, Any]) -> list[str]:
    lines = [
        f"### {name}\n",
        "| fix | predicted | measured | outcome |",
        "|---|---|---|---|",
    ]
    for proof in row["proofs"]:
        predicted = proof["predicted"]
        words = (
            f"{predicted['expected']:.2f}x ({predicted['low']:.2f} to {predicted['high']:.2f})"
            if predicted
            else ""
        )
        measured = ratio(proof["speedup"]) if proof["speedup"] else ""
        why = "" if proof["outcome"] == "kept" else f": {proof['why']}"
        lines.append(f"| {proof['treatment']} | {words} | {measured} | {proof['outcome']}{why} |")
    return lines


def ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.2f}x ({found['low']:.2f} to {found['high']:.2f})"


def best(row: dict[str, Any]) -> dict[str, Any] | None:
    """What `boundby prove` keeps: of those that held together the last, else the best alone."""
    kept = [one for one in row["proofs"] if one["outcome"] == "kept"]
    together = [one for one in kept if " + " in one["treatment"]]
    return max(together[-1:] or kept, key=lambda one: one["speedup"]["median"], default=None)
