"""Observations from torch profiler trace files."""

from __future__ import annotations

import zlib
from pathlib import Path

from boundby.capture.kineto.metadata import Device
from boundby.capture.kineto.stream import is_gzip
from boundby.capture.kineto.trace import Trace, read
from boundby.model import HostKind, Note, Timeline, units
from boundby.model.diagnosis import KindOfStep
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation, ObservedDevice, RankInfo, StepTiming
from boundby.model.step_kind import StepKind

_HEAD_BYTES = 256  # enough to tell the format
# A gzip block is decompressed as a whole.
_COMPRESSED_BYTES = 64 << 10
_GZIP = zlib.MAX_WBITS | 16  # definition: zlib's code for a gzip header


class KinetoSource:
    """Chrome traces as the torch profiler writes them, `.json` or `.json.gz`."""

    name = "torch profiler trace"

    def recognises(self, path: Path) -> bool:
        """JSON that is not one of boundby's own files. A damaged trace counts too."""
        start = head_of(path).lstrip(b"\xef\xbb\xbf \t\r\n")
        return start[:1] in (b"{", b"[") and not start[1:].lstrip().startswith(b'"schema":')

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        return [observe_trace(read(path), index=index, wall_ns=wall_ns)]


def observe_trace(
    trace: Trace, *, index: int | None = None, wall_ns: float | None = None, source: str = "kineto"
) -> Observation:
    """One step of a trace. `wall_ns`: a clean step's time that the user gave."""
    timeline = trace.timeline(index)
    if timeline.wall_ns <= 0:
        raise BoundbyError(f"{trace.path}: the step takes no time: its events have no durations")
    notes = list(dict.fromkeys([*trace.notes, *timeline.notes]))
    listed = next((device for device in trace.metadata.devices if device.name), None)
    if not len(timeline.device):
        notes.append(_without_device(timeline, listed))
    if not timeline.calls:
        notes.append(_without_shapes(timeline))
    label = timeline.label or "traced"
    chosen = trace.steps[trace.median if index is None else index]
    others = sorted({step.series for step in trace.steps} - {chosen.series})
    notes += [_of_other_kind(trace, series) for series in others]
    # A device without work in the step has no roofs for the CPU's operators.
    if not len(timeline.device):
        listed = None
    metadata = trace.metadata
    return Observation(
        source=source,
        framework="torch",
        target=str(trace.path),
        device=ObservedDevice(
            kind=timeline.device_kind,
            name=listed.name if listed else None,
            memory_bytes=listed.memory_bytes if listed else None,
        ),
        step=StepTiming(
            kind=StepKind(label=label, series=label.partition("#")[0]),
            wall_source="profiled" if wall_ns is None else "given",
            wall_ns=wall_ns,
            samples_ns=_samples(trace, chosen.series) if wall_ns is None else [],
            others=[
                KindOfStep(
                    kind=series,
                    mode="forward",
                    steps=len(_samples(trace, series)),
                    wall_ns=trace.steps[trace.median_of(series)].wall_ns,
                )
                for series in others
            ],
        ),
        timeline=timeline,
        rank=None if metadata.rank is None else RankInfo(rank=metadata.rank, world=metadata.world),
        notes=notes,
    )


def _samples(trace: Trace, series: str) -> list[float]:
    return [float(step.wall_ns) for step in trace.steps if step.series == series]


def _of_other_kind(trace: Trace, series: str) -> Note:
    """A note on the other kind of step, and how to diagnose it."""
    index, steps = trace.median_of(series), len(_samples(trace, series))
    wall = units.time(trace.steps[index].wall_ns)
    text = f"also in the trace: {steps} {series} steps of {wall}: --index {index}"
    if steps == 1:
        text = f"also in the trace: one {series} step of {wall}: --index {index}"
    return Note(code="other-steps", text=text)


def _without_device(timeline: Timeline, listed: Device | None) -> Note:
    """A note if the step ran on the CPU, or if its launched work was not recorded."""
    launches = int((timeline.host.kind == HostKind.LAUNCH).sum())
    if not launches:
        text = "no device events: a CPU trace"
        if listed is not None:
            text += (
                f", or work on the {listed.name} was not recorded: profile with "
                "ProfilerActivity.CUDA"
            )
        return Note(code="cpu-trace", text=text)
    text = (
        f"{launches} launches but no device events were recorded, so what the device did is "
        "unknown: profile with ProfilerActivity.CUDA"
    )
    return Note(code="device-not-recorded", text=text)


def _without_shapes(timeline: Timeline) -> Note:
    """Why no operator has a roofline minimum."""
    if not (timeline.host.kind == HostKind.OP).any():
        text = (
            "no operators were recorded, only what ran on the device: profile with "
            "ProfilerActivity.CPU and record_shapes=True"
        )
        return Note(code="operators-not-recorded", text=text)
    text = (
        "operators carry no shapes, so their roofline minimum is unknown: record them with "
        "profile(record_shapes=True)"
    )
    return Note(code="no-shapes", text=text)


def head_of(path: Path) -> bytes:
    """The first bytes of a file, decompressed."""
    try:
        with path.open("rb") as file:
            head = file.read(_COMPRESSED_BYTES)
        return zlib.decompressobj(_GZIP).decompress(head, _HEAD_BYTES) if is_gzip(path) else head
    except (OSError, zlib.error):
        return b""
