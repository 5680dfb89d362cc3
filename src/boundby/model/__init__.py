"""The types that flow through boundby; everything else is a function between two of them.

Small types are frozen and keyword-only, an unknown is None. Times are in ns, sizes in bytes,
shares in 0..1, speed-ups are ratios. What is saved is exactly these types as JSON.
"""

from boundby.model.cost import DTYPE_BYTES, Argument, Cost, OpCall, Tensor
from boundby.model.machine import (
    CACHE_REACH,
    HOSTS_OWN,
    Bound,
    Machine,
    MemoryLevel,
    Overheads,
    Point,
    Roof,
    Source,
)
from boundby.model.precision import UNTOLD, Precision
from boundby.model.record import SCHEMA, Record
from boundby.model.timeline import (
    PYTHON_FRAMES,
    Allocations,
    DeviceEvents,
    DeviceKind,
    HostEvents,
    HostKind,
    Ints,
    Phase,
    PhaseMarks,
    ProfilerCallCost,
    Samples,
    Timeline,
)

__all__ = [
    "CACHE_REACH",
    "DTYPE_BYTES",
    "HOSTS_OWN",
    "PYTHON_FRAMES",
    "SCHEMA",
    "UNTOLD",
    "Allocations",
    "Argument",
    "Bound",
    "Cost",
    "DeviceEvents",
    "DeviceKind",
    "HostEvents",
    "HostKind",
    "Ints",
    "Machine",
    "MemoryLevel",
    "OpCall",
    "Overheads",
    "Phase",
    "PhaseMarks",
    "Point",
    "Precision",
    "ProfilerCallCost",
    "Record",
    "Roof",
    "Samples",
    "Source",
    "Tensor",
    "Timeline",
]
