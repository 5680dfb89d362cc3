"""What boundby predicts for repairs of JAX programs, beside what they are measured to save.

    python benchmarks/jax_fixes.py --out fixes.jsonl        # all cases, on a CPU or a GPU
    python benchmarks/jax_fixes.py mlp/unjitted gpt/remat   # some
    python benchmarks/jax_fixes.py --table fixes.jsonl

Each case of `jax_cases.py` is diagnosed by `boundby run` as it is, and measured with and without
its mistake, in turn, in one other process. The table has the speed-up that the case's finding
predicts, its interval, the measured one with its quartiles, and the place of the finding.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_cases import CASES

_CASES = Path(__file__).with_name("jax_cases.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--machine", type=Path, help="roofs saved with `boundby machine --json`")
    parser.add_argument("--seconds", type=float, default=600.0, help="of one process, at most")
    parser.add_argument("--out", type=Path, help="append a line of JSON for each case")
    parser.add_argument("--table", type=Path, help="print the table of such a file")
    options = parser.parse_args()
    if options.table is not None:
        rows = [json.loads(line) for line in options.table.read_text().splitlines()]
    else:
        rows = [_row(name, options) for name in options.cases or CASES]
    _print(rows)


def _row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "fault": CASES[name].fault}
    try:
        row |= _predicted(name, options)
        row |= {"measured": _measured(name, options)}
    except (subprocess.SubprocessError, ValueError) as error:
        row["problem"] = str(error)[-300:]
    if options.out is not None:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return row


def _predicted(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diagnosis.json"
        machine = ["--machine", str(options.machine)] if options.machine is not None else []
        script = [str(_CASES), name, "--scale", str(options.scale)]
        report = ["--quiet", "--json", str(path), *machine]
        _run([sys.executable, "-m", "boundby", "run", *report, *script], options.seconds)
        diagnosis = json.loads(path.read_text())
    wall = diagnosis["step"]["wall_ns"]
    # What concerns the run, or a number of samples, is no share of the step.
    findings = [one for one in diagnosis["findings"] if one.get("relative_to", "step") == "step"]
    at = [one["fault"] for one in findings]
    if CASES[name].fault not in at:
        return {"wall_ns": wall, "place": None, "found": at[:3]}
    place = at.index(CASES[name].fault)
    saving = findings[place]["saving_ns"]
    return {
        "wall_ns": wall,
        "place": place + 1,
        "saved": {part: saving[part] / wall for part in ("low", "expected", "high")},
    }


def _measured(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The share of the step that the repair saves, and quartiles."""
    command = [sys.executable, str(_CASES), name, "--measure", "--scale", str(options.scale)]
    ratios = json.loads(_run(command, options.seconds).splitlines()[-1])
    return {part: 1 - 1 / max(ratio, 1e-9) for part, ratio in ratios.items()}


def _run(command: Sequence[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def _print(rows: Sequence[dict[str, Any]]) -> None:
    print("| case | finding | place | predicted | measured | inside |")
    print("|---|---|---|---|---|---|")
    errors, inside = [], []
    for row in rows:
        measured, saved = row.get("measured"), row.get("saved")
        told = "not found" if saved is None else _shares(saved, "expected")
        seen = row.get("problem", "") if measured is None else _shares(measured, "middle")
        verdict = ""
        if saved is not None and measured is not None:
            is_inside = saved["low"] <= measured["high"] and measured["low"] <= saved["high"]
            inside.append(is_inside)
            errors.append(
                abs(saved["expected"] - measured["middle"]) / max(measured["middle"], 0.01)
            )
            verdict = "yes" if is_inside else "no"
        place = row.get("place") or "-"
        print(f"| {row['case']} | {row['fault']} | {place} | {told} | {seen} | {verdict} |")
    if errors:
        print(
            f"\n{len(errors)} of {len(rows)} found and measured; error of the time saved: median "
            f"{statistics.median(errors):.0%}; interval meets the measured quartiles: "
            f"{sum(inside)} of {len(inside)}"
        )


def _shares(saved: dict[str, float], middle: str) -> str:
    return f"{saved[middle]:.0%} ({saved['low']:.0%} to {saved['high']:.0%})"


if __name__ == "__main__":
    main()
