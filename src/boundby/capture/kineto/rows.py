"""A trace's events as columns of numbers, before they are sorted and linked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.arguments import CallKey
from boundby.model.timeline import Ints

Column = npt.NDArray[Any]


class Window(NamedTuple):
    """An interval of the trace's clock, in ns."""

    start_ns: int
    end_ns: int


@dataclass(slots=True, frozen=True)
class HostRows:
    start: Ints
    duration: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    thread: npt.NDArray[np.int32]
    correlation: Ints
    external: Ints
    sequence: Ints
    forward_thread: Ints
    call: npt.NDArray[np.int32]
    stack: npt.NDArray[np.int32]

    @property
    def end(self) -> Ints:
        return self.start + self.duration

    def take(self, rows: Column) -> HostRows:
        return HostRows(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(slots=True, frozen=True)
class DeviceRows:
    start: Ints
    duration: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    stream: Ints
    correlation: Ints
    external: Ints
    graph: npt.NDArray[np.bool_]
    bytes: Ints
    grid: Ints  # a number for each launch shape, grid and block; 0 is none

    @property
    def end(self) -> Ints:
        return self.start + self.duration

    def take(self, rows: Column) -> DeviceRows:
        return DeviceRows(*(getattr(self, name)[rows] for name in self.__slots__))


class MarkRows(NamedTuple):
    """The starts of phases of a step, in order of time."""

    start: Ints
    phase: npt.NDArray[np.int8]


@dataclass(slots=True, frozen=True)
class Columns:
    """All rows of a file, or of a window of it, and the tables their numbers point into."""

    host: HostRows
    device: DeviceRows
    marks: MarkRows
    names: list[str]
    threads: list[int]
    calls: list[CallKey]
    stacks: list[str]
    events: int
    bad: int
