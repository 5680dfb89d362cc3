"""The machine of an observation from another computer."""

from __future__ import annotations

from boundby.hardware import cache
from boundby.hardware.datasheet import find_unnamed
from boundby.hardware.datasheet_machine import from_datasheet, machine_of
from boundby.model import Machine, Note
from boundby.model.observation import ObservedDevice

_SAY = "name the chip with --machine NAME, or give its measured roofs with --machine FILE"


def machine_of_datasheet(device: ObservedDevice) -> tuple[Machine, list[Note]]:
    """The machine that the datasheet lists for a device, otherwise one measured here.

    It has no roofs if there is none.
    """
    if device.name is None and device.vendor and device.processors and device.memory_bytes:
        chip = find_unnamed(device.vendor, device.processors, device.memory_bytes)
        if chip is not None:
            return machine_of(chip, memory_bytes=device.memory_bytes), []
    if device.name is None:
        what = "CPU" if device.kind == "cpu" else "device"
        text = f"the trace does not name its {what}, so there are no roofs: {_SAY}"
        note = Note(code="device-not-named", text=text)
        return Machine(device="unknown device", kind="cpu"), [note]
    machine = from_datasheet(device.name, device.memory_bytes)
    if machine is not None:
        return machine, []
    machine = cache.find(device.name)
    if machine is not None:
        return machine, []
    text = f"no datasheet lists {device.name}, so there are no roofs: {_SAY}"
    unknown = Machine(device=device.name, kind="cuda", memory_bytes=device.memory_bytes)
    return unknown, [Note(code="device-not-in-datasheet", text=text)]
