"""Accounts of JAX programs, on a CPU or a GPU, and of one model in torch and in JAX.

    python benchmarks/jax_accounts.py --out accounts.jsonl      # all of `jax_programs.py`
    python benchmarks/jax_accounts.py gpt lstm --machine roofs.json
    python benchmarks/jax_accounts.py --table accounts.jsonl    # the newest row of each

Each program is diagnosed by `boundby run` in a process of its own. `unknown of work` is the share
of the operators' time without a cost or a roof. `of roof` is the operator nearest to its roof, or
past it, among those with at least 1% of the step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_programs import PROGRAMS

_SCRIPT = Path(__file__).with_name("jax_programs.py")
_GROUPS = ("compute", "bandwidth", "overhead", "unknown")
_LEAST_SHARE = 0.01  # of the step: the clock's error is too large beside shorter operators
_SIDE_BY_SIDE = ("torch", "torch-compile", "gpt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--machine", type=Path, help="roofs saved with `boundby machine --json`")
    parser.add_argument("--seconds", type=float, default=600.0, help="of one program, at most")
    parser.add_argument("--out", type=Path, help="append a line of JSON for each program")
    parser.add_argument("--table", type=Path, help="print the tables of such a file")
    options = parser.parse_args()
    if options.table is not None:
        rows = {
            row["program"]: row for row in map(json.loads, options.table.read_text().splitlines())
        }
    else:
        names = options.programs or list(PROGRAMS)
        rows = {name: _kept(name, options) for name in names}
    _print(rows)


def _kept(name: str, options: argparse.Namespace) -> dict[str, Any]:
    try:
        row = account(name, _diagnosis(name, options))
    except (subprocess.SubprocessError, ValueError) as error:
        row = {"program": name, "problem": str(error)[-300:]}
    if options.out is not None:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return row


def _diagnosis(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diagnosis.json"
        machine = ["--machine", str(options.machine)] if options.machine is not None else []
        script = [str(_SCRIPT), name, f"--scale={options.scale}", f"--steps={options.steps}"]
        command = ["-m", "boundby", "run", "--quiet", "--json", str(path), *machine, *script]
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            timeout=options.seconds,
            check=False,
        )
        if not path.exists():
            raise ValueError(done.stderr)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def account(name: str, diagnosis: dict[str, Any]) -> dict[str, Any]:
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
    return {
        "program": name,
        "device": diagnosis["machine"]["device"],
        "wall_ms": wall / 1e6,
        "shares": {group: diagnosis["account"][group]["share"] for group in _GROUPS},
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


def _print(rows: dict[str, dict[str, Any]]) -> None:
    jax_rows = [row for name, row in rows.items() if not name.startswith("torch")]
    beside = [rows[name] for name in _SIDE_BY_SIDE if name in rows]
    _print_table(jax_rows)
    if any(row not in jax_rows for row in beside):
        print("\nThe same GPT in torch and in JAX:\n")
        _print_table(beside)


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    print(
        "| program | step ms | compute | bandwidth | overhead | unknown | unknown of work |"
        " of roof | operators | MFU | first finding |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        title = PROGRAMS[row["program"]][0]
        if "problem" in row:
            print(f"| {title} | {row['problem']!r} |")
            continue
        shares = " | ".join(f"{row['shares'][group]:.0%}" for group in _GROUPS)
        near = f"{row['nearest'][2]:.0%}" if row["nearest"] else "-"
        mfu = f"{row['mfu']:.1%}" if row["mfu"] is not None else "-"
        finding = f"{row['finding']}, {row['saving']:.0%}" if row["finding"] else "-"
        print(
            f"| {title} | {row['wall_ms']:.2f} | {shares} | {row['unknown_of_work']:.1%} |"
            f" {near} | {row['operators']} | {mfu} | {finding} |"
        )


if __name__ == "__main__":
    main()
