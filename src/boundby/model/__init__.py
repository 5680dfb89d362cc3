"""The types that the packages of boundby exchange.

Types are frozen and keyword-only; None means unknown. Times are in ns, sizes in bytes,
shares in 0..1, speed-ups are ratios. Saved files are these types as JSON.

They are loaded when first used: `boundby.model.errors` and `units` must not bring numpy along.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boundby.model.cost import Argument, Cost, OpCall
    from boundby.model.hlo import ConvolutionDimensions, HloComputation, HloInstruction, Window
    from boundby.model.machine import (
        HOST_COSTS,
        Bound,
        Machine,
        MemoryLevel,
        Overheads,
        Point,
        Roof,
        Source,
    )
    from boundby.model.note import Note
    from boundby.model.precision import UNKNOWN_PRECISION, Precision
    from boundby.model.record import SCHEMA, Record
    from boundby.model.tensor import DTYPE_BYTES, Tensor
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

_MODULE_OF = {
    "Allocations": "timeline",
    "Argument": "cost",
    "Bound": "machine",
    "ConvolutionDimensions": "hlo",
    "Cost": "cost",
    "DTYPE_BYTES": "tensor",
    "DeviceEvents": "timeline",
    "DeviceKind": "timeline",
    "HOST_COSTS": "machine",
    "HloComputation": "hlo",
    "HloInstruction": "hlo",
    "HostEvents": "timeline",
    "HostKind": "timeline",
    "Ints": "timeline",
    "Machine": "machine",
    "MemoryLevel": "machine",
    "Note": "note",
    "OpCall": "cost",
    "Overheads": "machine",
    "PYTHON_FRAMES": "timeline",
    "Phase": "timeline",
    "PhaseMarks": "timeline",
    "Point": "machine",
    "Precision": "precision",
    "ProfilerCallCost": "timeline",
    "Record": "record",
    "Roof": "machine",
    "SCHEMA": "record",
    "Samples": "timeline",
    "Source": "machine",
    "Tensor": "tensor",
    "Timeline": "timeline",
    "UNKNOWN_PRECISION": "precision",
    "Window": "hlo",
}

__all__ = [
    "DTYPE_BYTES",
    "HOST_COSTS",
    "PYTHON_FRAMES",
    "SCHEMA",
    "UNKNOWN_PRECISION",
    "Allocations",
    "Argument",
    "Bound",
    "ConvolutionDimensions",
    "Cost",
    "DeviceEvents",
    "DeviceKind",
    "HloComputation",
    "HloInstruction",
    "HostEvents",
    "HostKind",
    "Ints",
    "Machine",
    "MemoryLevel",
    "Note",
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
    "Window",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'boundby.model' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"boundby.model.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
