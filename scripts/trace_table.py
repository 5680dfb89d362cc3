"""Writes docs/figures/traces.md: what boundby says of each trace in a folder, and what it costs.

Usage: scripts/trace_table.py FOLDER [PYTHON], where PYTHON has HolisticTraceAnalysis installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_PAGE = Path(__file__).parent.parent / "docs" / "figures" / "traces.md"
_HTA = """
import sys, tempfile, shutil, os
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
shutil.copy(sys.argv[1], folder)
analyzer = TraceAnalysis(trace_dir=folder)
analyzer.get_temporal_breakdown(visualize=False)
analyzer.get_gpu_kernel_breakdown(visualize=False)
analyzer.get_idle_time_breakdown(visualize=False)
"""
_HEAD = """# Traces

What `boundby trace` says of the traces that the tests use, with nothing but the file: the verdict,
the step without the profiler (with its interval), how much device time is costed, and how much is
classified by cost or by the kernels' names. CPU seconds and peak memory of the whole command,
beside those of HolisticTraceAnalysis. Written by `scripts/trace_table.py`.

| trace | bound by | step | costed | classified | boundby | HTA |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    folder, python = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    rows = [_row(path, python) for path in sorted(folder.rglob("*.json.gz"))]
    _PAGE.parent.mkdir(exist_ok=True)
    _PAGE.write_text(_HEAD + "\n".join(rows) + "\n")


def _row(path: Path, python: str | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "diagnosis.json"
        command = [sys.executable, "-m", "boundby", "trace", str(path), "--json", str(out)]
        ours = _cost(command)
        found = json.loads(out.read_text())
    theirs = _cost([python, "-c", _HTA, str(path)]) if python else "-"
    step, verdict, used = found["step"], found["verdict"], found["utilisation"]
    bound = " or ".join(name for name in (verdict["bound_by"], verdict.get("or_bound_by")) if name)
    low, high = (_ms(ns) for ns in step["wall_interval_ns"])
    wall = _ms(step["wall_ns"])
    interval = f" ({low} to {high})" if low != high else ""
    shares = [_share(used.get(name)) for name in ("costed", "classified")]
    name = path.name.removesuffix(".json.gz")
    return f"| {name} | {bound} | {wall} ms{interval} | {' | '.join(shares)} | {ours} | {theirs} |"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g}" if ns < 1e9 else f"{ns / 1e6:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}" if value < 0.995 else "100%"


def _cost(command: list[str]) -> str:
    """CPU seconds and peak memory of a process; both do not depend on what else is running."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        " used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        " print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    status, seconds, kilobytes = result.stdout.split()
    failed = "fails, " if int(status) else ""
    return f"{failed}{float(seconds):.1f} s, {int(kilobytes) / 1000:.0f} MB"


if __name__ == "__main__":
    main()
