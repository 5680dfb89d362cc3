"""A machine from its datasheet alone, for traces from elsewhere."""

from __future__ import annotations

from boundby.hardware import datasheet
from boundby.model import Machine, MemoryLevel, Overheads, Roof
from boundby.model.assumptions.device import SHORTEST_KERNEL_NS


def from_datasheet(device_name: str, memory_bytes: int | None = None) -> Machine | None:
    """The chip's printed peaks as roofs; None for a chip that is not in the table."""
    chip = datasheet.find_chip(device_name, memory_bytes)
    return None if chip is None else machine_of(chip, device_name, memory_bytes)


def machine_of(
    chip: datasheet.Chip, device_name: str | None = None, memory_bytes: int | None = None
) -> Machine:
    """The machine that a chip's printed peaks describe."""
    roofs = [
        Roof(
            name=name,
            value=figure.value,
            unit=_unit(name),
            source="datasheet",
            datasheet=figure.value,
            note="unsure: sources disagree" if figure.unsure else None,
        )
        for name, figure in chip.figures.items()
    ]
    return Machine(
        device=device_name or chip.name,
        kind="cuda",
        chip=chip.name,
        vendor=chip.vendor,
        memory_bytes=memory_bytes,
        roofs=roofs,
        levels=[MemoryLevel(roof="memory.dram", capacity=None)],
        overheads=Overheads(shortest_kernel_ns=SHORTEST_KERNEL_NS.value),
    )


def _unit(name: str) -> str:
    if name.startswith(("memory", "host_link", "network")):
        return "B/s"
    return "OP/s" if name.endswith("int8") else "FLOP/s"
