"""Writes docs/figures/traces.md: what boundby says of each trace in a folder, and what it costs.

Usage: scripts/trace_table.py FOLDER [PYTHON [PYTHON]], where the first PYTHON has
HolisticTraceAnalysis installed and the second TraceLens.
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
"""
_TRACELENS = """
import sys, tempfile, os
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
out = os.path.join(tempfile.mkdtemp(), "report.xlsx")
generate_perf_report_pytorch(profile_json_path=sys.argv[1], output_xlsx_path=out)
"""
_HEAD = """# Traces

What `boundby trace` reports for the traces of the tests, from the file alone. Written by
`scripts/trace_table.py`.

- **step**: the step time without the profiler, with its interval.
- **costed**: share of the device time with a known cost.
- **classified**: share of the device time whose class is known, by cost or by the kernels' names.
- **boundby, HTA, TraceLens**: CPU seconds and peak memory of the whole command, of
  HolisticTraceAnalysis (`TraceAnalysis`, temporal and kernel breakdown) and of TraceLens (its
  report). Each ran in a process of its own, one after the other. Other programs used the two cores,
  so seconds are noisy: compare only those of one row. "fails": the program ended with an error.

A trace of 1.3 million events (`benchmarks/trace_speed.py`, 408 MB) took `boundby trace` 8.1 CPU
seconds and 287 MB. HolisticTraceAnalysis had used 74 CPU seconds and 2.2 GB on the same file when
it was stopped after 170 seconds.

| trace | bound by | step | costed | classified | boundby | HTA | TraceLens |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    folder, peers = Path(sys.argv[1]), [*sys.argv[2:], None, None]
    files = sorted([*folder.rglob("*.json.gz"), *folder.rglob("*.xplane.pb*")])
    _row(files[0], peers[0], peers[1])  # writes byte code
    rows = [_row(path, peers[0], peers[1]) for path in files]
    _PAGE.parent.mkdir(exist_ok=True)
    _PAGE.write_text(_HEAD + "\n".join(rows) + "\n")


def _row(path: Path, hta: str | None, tracelens: str | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "diagnosis.json"
        command = [sys.executable, "-m", "boundby", "trace", str(path), "--json", str(out)]
        ours = _cost(command)
        found = json.loads(out.read_text())
    is_kineto = ".xplane" not in path.name
    peers = [
        _cost([python, "-c", code, str(path)]) if python and is_kineto else "-"
        for python, code in ((hta, _HTA), (tracelens, _TRACELENS))
    ]
    step, verdict, used = found["step"], found["verdict"], found["utilisation"]
    bound = " or ".join(name for name in (verdict["bound_by"], verdict.get("or_bound_by")) if name)
    low, high = (_ms(ns) for ns in step["wall_interval_ns"])
    wall = _ms(step["wall_ns"])
    interval = f" ({low} to {high})" if low != high else ""
    shares = [_share(used.get(name)) for name in ("costed", "classified")]
    name = path.name.removesuffix(".gz").removesuffix(".json")
    cells = [name, bound, f"{wall} ms{interval}", *shares, ours, *peers]
    return f"| {' | '.join(cells)} |"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g}" if ns < 1e9 else f"{ns / 1e6:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}" if value < 0.995 else "100%"


def _cost(command: list[str]) -> str:
    """CPU seconds and peak memory of a process; both do not depend on what else is running."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # An installed package has its byte code; without, imports take longer than small traces.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
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
