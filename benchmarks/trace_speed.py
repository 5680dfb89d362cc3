"""How fast, and in how much memory, a large trace is read and diagnosed.

    python benchmarks/trace_speed.py             # 1.3 million events
    python benchmarks/trace_speed.py --scale 10  # 13 million, 4 GB plain

The trace is a fixture repeated with its times, steps and ids shifted, as if the loop had gone on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIXTURE = Path(__file__).parent.parent / "tests/data/h200/bad_mlp_syncs.json.gz"
EVENTS = 1_320_000  # as in the peers' figures

_SHIFTED = re.compile(
    r'(?P<key>"ts": |"correlation": |"External id": ?|"Sequence number": |"id": |ProfilerStep#)'
    r"(?P<value>[\d.]+)"
)
_READ = """
import resource, sys, time
start = time.perf_counter()
import boundby.capture.kineto as kineto
from boundby.capture.kineto.source import observe_trace
from boundby.diagnosis import diagnose
from boundby.report.display import as_text
trace = kineto.read(sys.argv[1])
read = time.perf_counter()
timeline = trace.timeline()
as_text(diagnose(observe_trace(trace)))
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
print(f"{trace.events:,} events, {len(trace.steps)} steps ({trace.steps_from});"
      f" imported and read {read - start:.2f} s, diagnosed and printed {end - read:.2f} s;"
      f" peak {peak:,.0f} MB")
print(f"step: {len(timeline.host):,} host rows, {len(timeline.device):,} device rows")
for note in trace.notes:
    print("note:", note.text)
"""


def repeated(text: str, times: int, *, markers: bool) -> Iterator[str]:
    """The fixture's text with its events repeated, each time later and with new ids."""
    begin = text.index("[", text.index('"traceEvents"')) + 1
    end = text.rindex("]")
    events = json.loads("[" + text[begin:end] + "]")
    complete = [event for event in events if event.get("ph") == "X"]
    starts = [event["ts"] for event in complete]
    span = max(event["ts"] + event["dur"] for event in complete) - min(starts) + 100
    pieces = _SHIFTED.split(text[begin:end].rstrip())
    steps = {
        "ts": span,
        "correlation": 1_000_000,
        "External id": 1_000_000,
        "Sequence number": 1_000_000,
        "id": 1_000_000,
        "ProfilerStep": 2,
    }
    strides = [steps[key.strip('":# ')] for key in pieces[1::3]]
    values = [float(value) if "." in value else int(value) for value in pieces[2::3]]
    yield text[:begin]
    for turn in range(times):
        for index, (stride, value) in enumerate(zip(strides, values, strict=True)):
            shifted = value + stride * turn
            pieces[3 * index + 2] = f"{shifted:.3f}" if isinstance(shifted, float) else str(shifted)
        block = "".join(pieces)
        yield block if markers else block.replace("ProfilerStep#", "step ")
        yield "" if turn == times - 1 else ","
    yield text[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1, help="times 1.3 million events")
    parser.add_argument("--gzip", action="store_true", help="a compressed file")
    parser.add_argument("--no-markers", action="store_true", help="without step markers")
    parser.add_argument("--folder", type=Path, help="where to make the file, and leave it")
    options = parser.parse_args()
    with gzip.open(FIXTURE, "rt") as file:
        text = file.read()
    times = max(1, round(EVENTS * options.scale / text.count('"ph":')))
    with tempfile.TemporaryDirectory() as temporary:
        suffix = ".json.gz" if options.gzip else ".json"
        path = (options.folder or Path(temporary)) / f"trace_x{options.scale:g}{suffix}"
        with gzip.open(path, "wt", 1) if options.gzip else path.open("w") as out:
            out.writelines(repeated(text, times, markers=not options.no_markers))
        print(f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB")
        subprocess.run([sys.executable, "-c", _READ, str(path)], check=True)


if __name__ == "__main__":
    main()
