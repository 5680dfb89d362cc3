"""Small timelines made by hand, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from boundby.model import (
    DeviceEvents,
    DeviceKind,
    HostEvents,
    HostKind,
    OpCall,
    Phase,
    Tensor,
    Timeline,
)

US = 1000


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


@dataclass
class Scene:
    """Collects events; `timeline()` sorts and nests them as a capture would."""

    start: float = 0.0
    end: float = 100.0
    host: list[tuple[float, float, HostKind, str, int, OpCall | None]] = field(default_factory=list)
    device: list[tuple[float, float, DeviceKind, str, int, int, int]] = field(default_factory=list)

    def on_host(
        self,
        start: float,
        end: float,
        kind: HostKind = HostKind.OP,
        name: str = "",
        thread: int = 1,
        call: OpCall | None = None,
    ) -> int:
        """Adds a host event and gives its row; add the outer ones first, in order of time."""
        self.host.append((start, end, kind, call.name if call else name, thread, call))
        return len(self.host) - 1

    def on_device(
        self,
        start: float,
        end: float,
        kind: DeviceKind = DeviceKind.KERNEL,
        name: str = "kernel",
        stream: int = 7,
        launch: int = -1,
        size: int = -1,
    ) -> None:
        self.device.append((start, end, kind, name, stream, launch, size))

    def timeline(self) -> Timeline:
        names: dict[str, int] = {}
        calls = [row[5] for row in self.host if row[5] is not None]
        count = len(self.host)
        parent = np.full(count, -1, np.int32)
        for row, (start, end, _, _, thread, _) in enumerate(self.host):
            for outer in range(row):
                begins, ends, _, _, other, _ = self.host[outer]
                if other == thread and begins <= start and end <= ends:
                    parent[row] = outer
        call_of = np.full(count, -1, np.int32)
        for number, row in enumerate(r for r in range(count) if self.host[r][5] is not None):
            call_of[row] = number
        host = HostEvents(
            start_ns=np.array([row[0] * US for row in self.host], np.int64),
            duration_ns=np.array([(row[1] - row[0]) * US for row in self.host], np.int64),
            kind=np.array([row[2] for row in self.host], np.int8),
            name=np.array([names.setdefault(row[3], len(names)) for row in self.host], np.int32),
            thread=np.array([row[4] for row in self.host], np.int64),
            parent=parent,
            call=call_of,
            source=np.full(count, -1, np.int32),
            module=np.full(count, -1, np.int32),
            phase=np.full(count, Phase.FORWARD, np.int8),
            sequence=np.full(count, -1, np.int64),
            forward=np.full(count, -1, np.int32),
            external=np.full(count, -1, np.int64),
        )
        device = sorted(self.device)
        op = [self._operator(row[5], parent) for row in device]
        return Timeline(
            start_ns=int(self.start * US),
            end_ns=int(self.end * US),
            host=host,
            device=DeviceEvents(
                start_ns=np.array([row[0] * US for row in device], np.int64),
                duration_ns=np.array([(row[1] - row[0]) * US for row in device], np.int64),
                kind=np.array([row[2] for row in device], np.int8),
                name=np.array([names.setdefault(row[3], len(names)) for row in device], np.int32),
                stream=np.array([row[4] for row in device], np.int64),
                launch=np.array([row[5] for row in device], np.int32),
                op=np.array(op, np.int32),
                graph=np.zeros(len(device), np.bool_),
                bytes=np.array([row[6] for row in device], np.int64),
            ),
            names=list(names),
            calls=calls,
            device_kind="cuda" if device else "cpu",
        )

    def _operator(self, launch: int, parent: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
        row = launch
        while row >= 0 and self.host[row][2] is not HostKind.OP:
            row = int(parent[row])
        return row
