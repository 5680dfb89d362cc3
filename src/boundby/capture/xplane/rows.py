"""The events of a profile as columns, before they are linked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from boundby.model.timeline import Ints

NONE = -1  # definition


@dataclass(slots=True)
class Names:
    """A table of names, each stored once."""

    table: list[str] = field(default_factory=list)
    _number: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        found = self._number.get(name)
        if found is None:
            found = self._number[name] = len(self.table)
            self.table.append(name)
        return found


@dataclass(slots=True, frozen=True, kw_only=True)
class DeviceRows:
    """One row per kernel, copy or instruction that ran on a device, sorted by start.

    `operation` is the name of the HLO instruction that the profiler recorded, `program` and
    `module` the number and the name of its program, in `names`; -1 is none.
    """

    start: Ints
    duration: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    stream: Ints
    correlation: Ints
    operation: npt.NDArray[np.int32]
    module: npt.NDArray[np.int32]
    program: Ints
    run: Ints  # the execution of the program, if the profiler numbers them
    graph: npt.NDArray[np.bool_]
    bytes: Ints

    @property
    def end(self) -> Ints:
        return self.start + self.duration

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> DeviceRows:
        return DeviceRows(**{name: getattr(self, name)[rows] for name in self.__slots__})


@dataclass(slots=True, frozen=True, kw_only=True)
class HostRows:
    """One row per event of the host, sorted by thread, then start, then longest first."""

    start: Ints
    duration: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    thread: Ints
    correlation: Ints
    parent: npt.NDArray[np.int32]

    @property
    def end(self) -> Ints:
        return self.start + self.duration

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> HostRows:
        return HostRows(**{name: getattr(self, name)[rows] for name in self.__slots__})
