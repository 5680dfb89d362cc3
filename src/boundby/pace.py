"""The host's pace: how long a fixed piece of Python takes just now.

Cores that are shared with strangers run at two speeds or more, and change within seconds: 545 us or
1050 us were seen for the same 20,000 additions on one machine, whoever was pinned where. Beside a
figure that rests on the host, the pace says whether it was the figure that changed.
"""

from __future__ import annotations

import time

import msgspec

from boundby.model import Machine

# Half a millisecond on a fast core: short beside what it accompanies, long for a clock.
ADDITIONS = 20_000
# Overheads that are the host's own: they grow as its Python does.
_OVERHEADS = (
    "eager_op_ns",
    "trained_op_ns",
    "launch_ns",
    "compiled_call_ns",
    "compiled_kernel_ns",
    "sync_ns",
    "python_add_ns",
)
# Links whose bytes the host itself moves, to memory that the device can reach.
_LINKS = ("host_link.h2d.pageable", "host_link.d2h.pageable")
HOST = (*_OVERHEADS, *_LINKS)


def addition_ns(count: int = ADDITIONS) -> float:
    """The time of one addition of two floats in a plain loop of them."""
    total = 0.0
    began = time.perf_counter_ns()
    for _ in range(count):
        total += 1.5
    return (time.perf_counter_ns() - began) / count


def at_pace(machine: Machine, factor: float) -> Machine:
    """The machine whose host takes this many times as long for everything it does."""
    slower = {
        name: getattr(machine.overheads, name) * factor
        for name in _OVERHEADS
        if getattr(machine.overheads, name) is not None
    }
    overheads = msgspec.structs.replace(machine.overheads, **slower)
    roofs = [
        msgspec.structs.replace(roof, value=roof.value / factor) if roof.name in _LINKS else roof
        for roof in machine.roofs
    ]
    return msgspec.structs.replace(machine, overheads=overheads, roofs=roofs)
