"""Small traces written by hand, event by event."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from boundby.capture.kineto import Trace

Event = dict[str, Any]

DATA = Path(__file__).parent.parent / "data" / "h200"
SHARED = Path(__file__).parents[2].parent / "shared" / "traces"

ADDMM: Event = {
    "External id": 2,
    "Input Dims": [[8], [4, 16], [16, 8], [], []],
    "Input type": ["float", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"],
    "Input Strides": [[1], [16, 1], [1, 16], [], []],
    "Concrete Inputs": ["", "", "", "1", "1"],
}


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 9,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }


def op(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return event("cpu_op", name, ts, dur, tid, **args)


def frame(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return event("python_function", name, ts, dur, tid)


def launch(number: int, ts: float, name: str = "cudaLaunchKernel", tid: int = 1) -> Event:
    return event("cuda_runtime", name, ts, 5, tid, correlation=number)


def kernel(number: int, ts: float, dur: float, name: str = "gemm", **args: Any) -> Event:
    return event("kernel", name, ts, dur, 7, correlation=number, stream=7, device=0, **args)


def mark(step: int, ts: float, dur: float) -> Event:
    return event("user_annotation", f"ProfilerStep#{step}", ts, dur)


def text(events: list[Event], **metadata: Any) -> str:
    return json.dumps({"schemaVersion": 1, **metadata, "traceEvents": events, "traceName": "t"})


def write(folder: Path, content: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    return path


def step_events() -> list[Event]:
    """One step: two operators, each with a kernel; the host runs ahead of the device."""
    return [
        mark(0, 0, 100),
        frame("train.py(10): main", 0, 100),
        frame("nn.Module: Net_0", 5, 60),
        frame("torch/nn/modules/linear.py(120): forward", 6, 50),
        op("aten::linear", 10, 40, **{"External id": 1, "Sequence number": 3}),
        op("aten::addmm", 15, 30, **ADDMM),
        launch(101, 20),
        kernel(101, 40, 50),
        op("aten::relu", 70, 20, **{"External id": 4}),
        launch(102, 75),
        kernel(102, 95, 30, "relu"),
    ]


def codes(trace: Trace) -> list[str]:
    """The codes of the notes on a trace."""
    return [note.code for note in trace.notes]
