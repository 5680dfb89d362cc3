"""Accounts of JAX programs, on a CPU or a GPU, and of one model in torch and in JAX.

    python benchmarks/jax_accounts.py                           # all of `jax_programs.py`
    python benchmarks/jax_accounts.py gpt lstm --machine roofs.json
    python benchmarks/jax_tables.py                             # docs/figures/jax.md

On an H200, in 400 s, from a copy of the tree (rows in $OUT):

    boundby machine --json "$OUT/roofs.json" && python benchmarks/jax_accounts.py --scale 8 \
        --machine "$OUT/roofs.json" --seconds 120 --budget 300 --json "$OUT/jax_accounts.jsonl"

and then `python benchmarks/jax_tables.py --add jax_accounts.jsonl`. Each program is diagnosed by
`boundby run` in a process of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jax_programs import PROGRAMS
from jax_rows import diagnosis, measure, parser
from ledger import Row

_SCRIPT = Path(__file__).with_name("jax_programs.py")
_GROUPS = ("compute", "bandwidth", "overhead", "unknown")
_LEAST_SHARE = 0.01  # of the step: the clock's error is too large beside shorter operators


def main() -> None:
    options = parser(__doc__, "jax_accounts")
    options.add_argument("--steps", type=int, default=200)
    given = options.parse_args()
    measure(given.names or PROGRAMS, given, _row, key="program")


def _row(name: str, options: argparse.Namespace) -> Row:
    script = [str(_SCRIPT), name, f"--scale={options.scale}", f"--steps={options.steps}"]
    return account(diagnosis(script, options))


def account(diagnosis: dict[str, Any]) -> Row:
    """What the tables need of a diagnosis."""
    step, ops, wall = diagnosis["step"], diagnosis["ops"], diagnosis["step"]["wall_ns"]
    work_ns = sum(op["ns"] for op in ops) or 1.0
    near = [
        op
        for op in ops
        if op["roof_fraction"] is not None
        and op["bound"] in ("compute", "memory")
        and op["ns"] >= _LEAST_SHARE * wall
    ]
    nearest = max(near, key=lambda op: op["roof_fraction"], default=None)
    unknown = [op for op in ops if op["bound"] == "unknown"]
    findings = [one for one in diagnosis["findings"] if one.get("relative_to", "step") == "step"]
    groups = diagnosis["account"]
    return {
        "device": diagnosis["machine"]["device"],
        "wall_ms": wall / 1e6,
        "busy_ms": (step["device_busy_ns"] or 0) / 1e6,
        "shares": {group: groups[group]["share"] for group in _GROUPS},
        "sum_over_wall": sum(value["ns"] for value in groups.values()) / wall,
        "unknown_of_work": sum(op["ns"] for op in unknown) / work_ns,
        "unknowns": [[op["name"], op["ns"]] for op in unknown[:5]],
        "nearest": [nearest["name"], nearest["shapes"], nearest["roof_fraction"]]
        if nearest
        else None,
        "past": [
            [op["name"], op["shapes"], op["roof_fraction"], op["ns"]]
            for op in near
            if op["roof_fraction"] > 1.05
        ],
        "operators": sum(op["count"] for op in ops),
        "mfu": diagnosis["utilisation"]["mfu"],
        "replay_error": step["replay_error"],
        "dilation": step["dilation"],
        "bound_by": diagnosis["verdict"]["bound_by"],
        "finding": findings[0]["fault"] if findings else None,
        "saving": findings[0]["saving_ns"]["expected"] / wall if findings else None,
        "notes": [note["code"] for note in diagnosis["notes"]],
    }


if __name__ == "__main__":
    main()
