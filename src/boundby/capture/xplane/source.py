"""Observations from XLA profiles."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from boundby.model import Note
from boundby.model.errors import BoundbyError
from boundby.model.observation import (
    Observation,
    ObservedDevice,
    ProgramMemory,
    Settings,
    StepTiming,
)
from boundby.model.step_kind import StepKind

if TYPE_CHECKING:
    from boundby.capture.xplane.trace import XlaTrace

_HEAD_BYTES = 64  # enough to tell the format
_GZIP = b"\x1f\x8b"
# The key of a field of an XSpace: planes (1) to host names (4), each a message or a text.
_FIRST_KEYS = (0x0A, 0x12, 0x1A, 0x22)
# The keys that a plane may begin with: its number, its name, its lines, its tables, its stats.
_PLANE_KEYS = (0x08, 0x12, 0x1A, 0x22, 0x2A, 0x32)


class XplaneSource:
    """XLA profiles as `jax.profiler` writes them, `.xplane.pb`, also compressed with gzip."""

    name = "XLA profile"

    def recognises(self, path: Path) -> bool:
        """A message whose first field is a plane. A damaged file counts too."""
        head = _head(path)
        if len(head) < 3 or head[0] not in _FIRST_KEYS:
            return False
        at = next((at for at in range(1, min(len(head) - 1, 11)) if head[at] < 0x80), None)
        if at is None:
            return False
        return head[0] != _FIRST_KEYS[0] or head[at + 1] in _PLANE_KEYS

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        from boundby.capture.xplane.trace import read

        return [observe_trace(read(path), index=index, wall_ns=wall_ns)]


def observe_trace(
    trace: XlaTrace, *, index: int | None = None, wall_ns: float | None = None
) -> Observation:
    """One step of a profile. `wall_ns`: a clean step's time that the user knows."""
    from boundby.capture.xplane.repeated_code import repeated_code

    timeline = trace.timeline(index)
    if timeline.wall_ns <= 0:
        raise BoundbyError(f"{trace.path}: the step takes no time: its events have no durations")
    notes: list[Note] = list(dict.fromkeys(timeline.notes))
    label = timeline.label or "traced"
    device = trace.metadata.devices[0]
    return Observation(
        source="xplane",
        framework="jax",
        target=str(trace.path),
        device=ObservedDevice(
            kind=timeline.device_kind,
            name=device.name,
            memory_bytes=device.memory_bytes,
            vendor=trace.vendor,
            processors=device.processors,
        ),
        step=StepTiming(
            kind=StepKind(label=label, series=label.partition("#")[0]),
            wall_source="profiled" if wall_ns is None else "given",
            wall_ns=wall_ns,
            samples_ns=[float(step.wall_ns) for step in trace.steps] if wall_ns is None else [],
        ),
        timeline=timeline,
        settings=Settings(versions=trace.versions),
        programs=_memory(trace, index),
        repeated=[one for module in trace.modules(index) for one in repeated_code(module)],
        notes=notes,
    )


def _memory(trace: XlaTrace, index: int | None) -> list[ProgramMemory]:
    return [
        ProgramMemory(
            name=module.name,
            argument_bytes=memory.argument_bytes,
            output_bytes=memory.output_bytes,
            alias_bytes=memory.alias_bytes,
            temporary_bytes=memory.temporary_bytes,
            peak_bytes=memory.peak_bytes,
        )
        for module in trace.modules(index)
        if (memory := module.memory) is not None
    ]


def _head(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if not head.startswith(_GZIP):
                return head
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return unpacked.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
