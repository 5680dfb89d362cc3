"""One step in numpy columns: the events of the host and of the device."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from boundby.model.cost import OpCall
from boundby.model.note import Note
from boundby.model.record import Record

Ints = npt.NDArray[np.int64]


class HostKind(enum.IntEnum):
    OP = 0  # a framework operator
    LAUNCH = 1  # a runtime call that enqueues device work
    SYNC = 2  # a runtime call in which the host waits for the device
    RUNTIME = 3  # any other runtime call
    PYTHON = 4  # a Python function
    ANNOTATION = 5  # a range the user, the optimizer or the framework marked
    DATA = 6  # waiting for the next batch
    OBSERVER = 7  # a Python function of boundby's own, which may call the script's


# Rows that are calls of Python functions.
PYTHON_FRAMES = (HostKind.PYTHON, HostKind.OBSERVER)


class DeviceKind(enum.IntEnum):
    KERNEL = 0
    COLLECTIVE = 1
    COPY_H2D = 2
    COPY_D2H = 3
    COPY_D2D = 4
    MEMSET = 5


class Phase(enum.IntEnum):
    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3


class HostEvents(Record, frozen=True, kw_only=True):
    """Columns, one row per event, sorted by thread, then start, then longest first.

    `name`, `source` and `module` index the timeline's tables, as does `inside`, the line of a
    library that the user's line led to, if known; `call` its list of operator calls; `parent`
    another row (the innermost event around this one on its thread), `forward` the row of the
    forward operator that a backward row belongs to; -1 is none. `phase` holds `Phase`, `kind` holds
    `HostKind`. `external` is the profiler's own identifier of an operator call. `called` is the
    line that led to a row, if known: for a function of the user's, whose `source` is its own first
    line, it is the caller's line. `outer`: the line of the step's loop that led to it, if known.
    """

    start_ns: Ints
    duration_ns: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    thread: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int32]
    call: npt.NDArray[np.int32]
    source: npt.NDArray[np.int32]
    module: npt.NDArray[np.int32]
    phase: npt.NDArray[np.int8]
    sequence: Ints
    forward: npt.NDArray[np.int32]
    external: Ints
    inside: npt.NDArray[np.int32] | None = None
    called: npt.NDArray[np.int32] | None = None
    outer: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


class DeviceEvents(Record, frozen=True, kw_only=True):
    """Columns, one row per kernel, copy or memset, sorted by start.

    `launch` is the host row that enqueued it, `op` the host row of the innermost operator around
    that call; -1 is none. `graph` marks kernels replayed from a captured graph. `bytes` is the
    size a copy, a memset or a collective reports, else -1. A row belongs to the step that launched
    it: on a side stream it may extend beyond the step's ends.

    `grid` is a number for the grid and block of a kernel's launch, the same in every trace; 0 is
    none.

    A kernel of a graph has no operator around it. `call` is then the operator call that launched it
    while the graph was captured; rows of one such call have the same number in `share`; `source` is
    the line of that call; -1 is none. Kernels of a program that was compiled as a whole have no
    operator either: `inside`, `module` and `phase` are then like those of `HostEvents`.
    """

    start_ns: Ints
    duration_ns: Ints
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    stream: npt.NDArray[np.int64]
    launch: npt.NDArray[np.int32]
    op: npt.NDArray[np.int32]
    graph: npt.NDArray[np.bool_]
    bytes: Ints
    grid: Ints | None = None
    call: npt.NDArray[np.int32] | None = None
    share: npt.NDArray[np.int32] | None = None
    source: npt.NDArray[np.int32] | None = None
    inside: npt.NDArray[np.int32] | None = None
    module: npt.NDArray[np.int32] | None = None
    phase: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


class Allocations(Record, frozen=True, kw_only=True):
    """Columns, one row per allocation during an operator, in order of time.

    `row` is the innermost operator's host row, `storage` the memory's address, as tensors name it.
    """

    row: npt.NDArray[np.int32]
    storage: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.row)


class Samples(Record, frozen=True, kw_only=True):
    """Columns, one row per sample of the line that a Python function was executing.

    `row` is the function's host row, `source` indexes the timeline's table.
    """

    start_ns: Ints
    row: npt.NDArray[np.int32]
    source: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.row)


class PhaseMarks(Record, frozen=True, kw_only=True):
    """Columns, one row per start of a phase of the step, in order of time.

    `phase` holds `Phase`. A live run writes them as explicit marks; other traces have none.
    """

    start_ns: Ints
    phase: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.start_ns)


class ProfilerCallCost(Record, frozen=True, kw_only=True):
    """The time that the profiler adds: to a call of a Python function, to a call of a C function,
    and to the time in which Python's own code runs, as a share of it (`of_python`)."""

    function_ns: float = 0.0
    builtin_ns: float = 0.0
    of_python: float = 0.0


class Timeline(Record, frozen=True, kw_only=True):
    """One step: host events, device events and the links between them."""

    start_ns: int
    end_ns: int
    host: HostEvents
    device: DeviceEvents
    names: list[str]
    sources: list[str] = []  # "train.py:42"
    modules: list[str] = []  # "BertLayer.attention"
    calls: list[OpCall] = []
    allocations: Allocations | None = None  # only in a live run
    samples: Samples | None = None
    phases: PhaseMarks | None = None
    call_cost: ProfilerCallCost | None = None
    device_name: str | None = None
    device_kind: str = "cpu"  # "cpu", "cuda", "hip", "tpu"
    rank: int | None = None
    world: int | None = None
    label: str | None = None  # the marker it was cut at: "ProfilerStep#3"
    notes: list[Note] = []

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns
