"""What a trace says about its machine and job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boundby.capture.kineto.names import clean
from boundby.model.record import Record


class Device(Record, frozen=True, kw_only=True):
    """A device as the profiler listed it."""

    index: int
    name: str | None
    memory_bytes: int | None
    processors: int | None  # streaming multiprocessors or compute units


class Metadata(Record, frozen=True, kw_only=True):
    """The part of a trace that is not events."""

    devices: list[Device] = []
    kind: str = "cuda"  # of its device: "cuda", "hip"
    rank: int | None = None
    world: int | None = None
    backend: str | None = None
    shapes: bool | None = None  # whether the profiler was set to record them
    stacks: bool | None = None

    @property
    def device_name(self) -> str | None:
        return next((device.name for device in self.devices if device.name), None)


def read_metadata(found: Mapping[str, Any]) -> Metadata:
    """Take what is well-formed; anything else is unknown."""
    job = found.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    listed = found.get("deviceProperties")
    listed = listed if isinstance(listed, list) else []
    devices = [_device(entry) for entry in listed if isinstance(entry, dict)]
    is_hip = any(key.startswith(("hip_", "roc")) for key in found) or any(
        "AMD" in (device.name or "") for device in devices
    )
    return Metadata(
        devices=devices,
        kind="hip" if is_hip else "cuda",
        rank=_whole(job.get("rank")),
        world=_whole(job.get("world_size")),
        backend=_text(job.get("backend")),
        shapes=_flag(found.get("record_shapes")),
        stacks=_flag(found.get("with_stack")),
    )


def _device(entry: Mapping[str, Any]) -> Device:
    return Device(
        index=_whole(entry.get("id")) or 0,
        name=_text(entry.get("name")),
        memory_bytes=_whole(entry.get("totalGlobalMem")),
        processors=_whole(entry.get("numSms")),
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) and value.strip() else None


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
