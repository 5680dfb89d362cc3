"""A diagnosis' timeline as a Chrome trace, which the Perfetto UI opens: every slice annotated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import LaneKind, Slice

_HOST, _DEVICE = 1, 2  # process numbers in the trace


def as_perfetto(diagnosis: Diagnosis) -> bytes:
    """Chrome's trace event format, times in us from the step's start."""
    events = [*_lanes(diagnosis), *_slices(diagnosis), *_flows(diagnosis)]
    about = {
        "boundby": diagnosis.verdict.bound_by,
        "target": diagnosis.target,
        "device": diagnosis.machine.device,
    }
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})


def _track(lane: LaneKind, number: int) -> tuple[int, int]:
    """Process and thread of a lane: the host and the device are one process each."""
    if lane == "idle":
        return _DEVICE, 0
    # Thread 0 of the device is its idle time; streams are numbered from 0 too.
    return (_DEVICE, number + 1) if lane == "stream" else (_HOST, number)


def _lanes(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    for process, name in ((_HOST, "host"), (_DEVICE, diagnosis.machine.device)):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    lanes = dict.fromkeys((piece.lane, piece.number) for piece in diagnosis.timeline)
    for lane, number in lanes:
        process, thread = _track(lane, number)
        about = {"ph": "M", "pid": process, "tid": thread}
        yield {
            **about,
            "name": "thread_name",
            "args": {"name": "idle" if lane == "idle" else f"{lane} {number}"},
        }
        order = 0 if lane == "idle" else thread
        yield {**about, "name": "thread_sort_index", "args": {"sort_index": order}}


def _slices(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    for piece in diagnosis.timeline:
        process, thread = _track(piece.lane, piece.number)
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread,
            "name": f"idle: {piece.cause}" if piece.lane == "idle" else piece.name,
            "cat": piece.bound or piece.cause or piece.lane,
            "ts": piece.start_ns / 1e3,
            "dur": piece.ns / 1e3,
            "args": _arguments(diagnosis, piece),
        }


def _arguments(diagnosis: Diagnosis, piece: Slice) -> dict[str, Any]:
    """The arguments of a slice; unknown ones are None, not left out."""
    floor = piece.floor_ns
    arguments: dict[str, Any] = {
        "bound": piece.bound,
        "floor_us": None if floor is None else floor / 1e3,
        "excess_us": None if floor is None else (piece.ns - floor) / 1e3,
        "where": piece.where,
        "cause": piece.cause,
    }
    if piece.op is not None and piece.op < len(diagnosis.ops):
        row = diagnosis.ops[piece.op]
        arguments |= {"operator": row.name, "shapes": row.shapes, "module": row.module}
    return arguments


def _flows(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    """An arrow from each launch to its kernel on the device."""
    for number, piece in enumerate(diagnosis.timeline):
        if piece.flow is None or not 0 <= piece.flow < len(diagnosis.timeline):
            continue
        launch = diagnosis.timeline[piece.flow]
        for phase, end in (("s", launch), ("f", piece)):
            process, thread = _track(end.lane, end.number)
            yield {
                "ph": phase,
                "id": number,
                "pid": process,
                "tid": thread,
                "name": "launch",
                "cat": "launch",
                "ts": end.start_ns / 1e3,
                **({"bp": "e"} if phase == "f" else {}),
            }
