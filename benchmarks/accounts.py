"""Accounts of real models on this machine, gathered into a ledger, printed as docs/accounts.md.

    python benchmarks/accounts.py run            # every model, each in a fresh process
    python benchmarks/accounts.py run gpt2 vit   # some of them
    python benchmarks/accounts.py table          # the document, from the ledger

One line of the ledger is one run, keyed by commit and device; the newest of each counts.
"""

from __future__ import annotations

import sys
from typing import Any

from diagnosed import diagnosed
from ledger import ROOT, TrialStore

LEDGER = TrialStore("accounts", key=("device", "name"))
DOCUMENT = ROOT / "docs" / "accounts.md"
WORKLOADS = [
    "bert",
    "bert-large",
    "bert-base-b1",
    "gpt2",
    "llama",
    "resnet50",
    "vit",
    "unet",
    "lstm",
    "moe",
    "llama-decode",
]
EXAMPLES = ["char_gpt", "image_classifier", "decode", "slow_mlp"]


def command(name: str) -> list[str]:
    if name.removeprefix("examples/") in EXAMPLES:
        return [f"examples/{name.removeprefix('examples/')}.py"]
    model, _, options = name.partition(" ")
    return ["benchmarks/workloads.py", model, *options.split()]


def run(names: list[str]) -> None:
    for name in names:
        if (diagnosis := diagnosed(name, command(name))) is not None:
            print(line(LEDGER.append(summary(name, diagnosis))), flush=True)


def summary(name: str, diagnosis: dict[str, Any]) -> dict[str, Any]:
    """What the table needs of a diagnosis, and what makes one doubt it."""
    step, ops = diagnosis["step"], diagnosis["ops"]
    device_ns = sum(op["ns"] for op in ops) or 1
    groups = diagnosis["account"]
    return {
        "name": name,
        "device": diagnosis["machine"]["device"],
        "kind": step["kind"],
        "wall_ms": step["wall_ns"] / 1e6,
        "interval_ms": [ns / 1e6 for ns in step["wall_interval_ns"]],
        "shares": {group: value["share"] for group, value in groups.items()},
        "sum_over_wall": sum(value["ns"] for value in groups.values()) / step["wall_ns"],
        "busy_ms": (step["device_busy_ns"] or 0) / 1e6,
        "kernels": step["kernels"],
        "dilation": step["dilation"],
        "replay_error": step["replay_error"],
        "mfu": diagnosis["utilisation"]["mfu"],
        "unknown_of_work": sum(op["ns"] for op in ops if op["bound"] == "unknown") / device_ns,
        "suspect_of_work": sum(op["ns"] for op in ops if op["roof_suspect"]) / device_ns,
        "suspects": [
            [op["name"], op["shapes"], op["roof_fraction"], op["ns"]]
            for op in ops
            if op["roof_suspect"]
        ][:5],
        "unknowns": sorted({op["name"][:80] for op in ops if op["bound"] == "unknown"})[:8],
        "classes": [
            [c["class"], c["flops_share"], c["time_share"], c["slower_than_contractions"]]
            for c in diagnosis["classes"]
        ],
        "phases_ms": {p["name"]: p["host_issue_ns"] / 1e6 for p in step["phases"]},
        "warnings": diagnosis["warnings"],
    }


def line(row: dict[str, Any]) -> str:
    shares = " | ".join(f"{row['shares'][g]:.0%}" for g in ("compute", "bandwidth", "overhead"))
    mfu = f"{row['mfu']:.1%}" if row["mfu"] is not None else "-"
    dilation = f"{row['dilation']:.2f}" if row["dilation"] else "-"
    error = row.get("replay_error")
    replay = f"{error:+.1%}" if error is not None else "-"
    return (
        f"| {row['name']} | {row['kind']} | {row['wall_ms']:.1f} | {row['busy_ms']:.1f} |"
        f" {shares} |"
        f" {row['shares']['unknown']:.1%} | {row['unknown_of_work']:.1%} |"
        f" {row['suspect_of_work']:.2%} | {dilation} | {replay} | {mfu} |"
    )


def table() -> None:
    newest = LEDGER.newest()
    parts = [
        "# Accounts of real models\n",
        "Made by `python benchmarks/accounts.py run` and `python benchmarks/accounts.py table`.",
        "Random weights and data, one process each; times are medians of clean steps.",
        "`unknown` is the share of the step, `uncosted` of the work's own time; `suspect` is the",
        "share of work time above its roof; `replay` is how far the replayed step is off the clean",
        "one (on a CPU: how far other steps are, timed phase by phase).\n",
        "The suspects on the H200 are products with the gradients of a loss over a vocabulary, at",
        "107% (llama) and 103% (t5) of the roof: llama's are mostly tiny numbers, which draw less",
        "power than the random ones that roofs are measured with, and t5's are likely so too.",
        "Those on the CPU come and go with the roofs, which a machine that others share measures",
        "differently from one minute to the next.\n",
    ]
    for device in sorted({where for where, _ in newest}):
        parts += [
            f"## {device}\n",
            "| model | step | wall ms | busy ms | compute | bandwidth | overhead | unknown |"
            " uncosted | suspect | dilation | replay | MFU |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            *(line(row) for (where, _), row in newest.items() if where == device),
            "",
        ]
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text("\n".join(parts) + "\n")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        table()
    elif sys.argv[1:2] == ["run"]:
        run(sys.argv[2:] or [*WORKLOADS, *(f"examples/{name}" for name in EXAMPLES)])
    else:
        sys.exit(__doc__)
