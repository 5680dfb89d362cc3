"""Real operators on the CPU, recorded by torch's profiler and read back as calls."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from boundby.model import Argument, OpCall, Tensor

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8",
    "c10::Float8_e5m2": "float8",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


class Op(msgspec.Struct):
    """One recorded operator: its call, and the operators inside it."""

    call: OpCall
    start: float
    end: float
    children: list[Op]

    def walk(self) -> Iterator[Op]:
        yield self
        for child in self.children:
            yield from child.walk()


def _value(text: str) -> Argument:
    if not text:
        return None
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return tuple(value) if isinstance(value, list) else value


def read_call(event: dict[str, Any]) -> OpCall:
    """One trace event as a call."""
    args = event.get("args", {})
    types = args.get("Input type", [])
    dims = args.get("Input Dims", [[]] * len(types))
    strides = args.get("Input Strides", [None] * len(types))
    values = args.get("Concrete Inputs", [""] * len(types))
    arguments: list[Argument] = []
    for kind, shape, stride, value in zip(types, dims, strides, values, strict=True):
        if kind in DTYPES:
            arguments.append(_tensor(kind, shape, stride))
        elif kind == "TensorList" and shape and isinstance(shape[0], list):
            # A list has no dtype of its own: float32 is used for all of them here.
            steps = stride or [None] * len(shape)
            arguments.append(
                tuple(_tensor("float", s, t) for s, t in zip(shape, steps, strict=True))
            )
        else:
            arguments.append(_value(value))
    return OpCall(name=event["name"], args=tuple(arguments))


def _tensor(kind: str, shape: list[int], stride: list[int] | None) -> Tensor:
    steps = tuple(stride) if stride is not None and len(stride) == len(shape) else None
    return Tensor(shape=tuple(shape), dtype=DTYPES[kind], strides=steps)


def read_trace(path: Path) -> list[Op]:
    """The outermost operators of a trace, each with what is inside it."""
    document = json.loads(path.read_bytes())
    events = document["traceEvents"] if isinstance(document, dict) else document
    ops = [e for e in events if e.get("cat") == "cpu_op" and e.get("ph") == "X"]
    ops.sort(key=lambda e: (e["tid"], float(e["ts"]), -float(e["dur"])))
    roots: list[Op] = []
    stack: list[tuple[Any, Op]] = []
    for event in ops:
        start = float(event["ts"])
        op = Op(call=read_call(event), start=start, end=start + float(event["dur"]), children=[])
        while stack and (stack[-1][0] != event["tid"] or stack[-1][1].end <= start):
            stack.pop()
        (stack[-1][1].children if stack else roots).append(op)
        stack.append((event["tid"], op))
    return roots


def record(function: Callable[[], object], directory: Path) -> list[Op]:
    """Run it once under the profiler."""
    import torch

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        function()
    path = directory / "trace.json"
    profiler.export_chrome_trace(str(path))
    return read_trace(path)
