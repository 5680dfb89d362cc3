"""Faster chips for a step that is near its roofs and has nothing left to fix.

The step is simulated with each operator's time scaled by the ratio of the two datasheets and with
the same host, so that a step limited by its host gains little.
Datasheet rates are not reached to the same degree on all chips, so each row has a range.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.hardware import datasheet
from boundby.model.assumptions.device import OTHER_VENDOR_SHARE, SAME_VENDOR_SHARE
from boundby.model.assumptions.verdict import BUSY_DEVICE, FASTER_CHIP, NEAR_ROOF, WORTH_FIXING
from boundby.model.estimate import Estimate
from boundby.model.finding import ChipRow, Finding
from boundby.step.model import Edit, StepModel
from boundby.step.op_record import OpRecord

_MOST_CHIPS = 3  # display limit
_VENDORS = ("nvidia", "amd")


def faster_chips(step_model: StepModel, findings: Sequence[Finding]) -> list[ChipRow]:
    """The chips on which the step would run fastest, if nothing is left to fix."""
    machine = step_model.machine
    present = next((chip for chip in datasheet.chips() if chip.name == machine.chip), None)
    busy = sum(record.exposed_ns for record in step_model.op_records)
    of_step = [finding for finding in findings if finding.relative_to != "run"]
    fixable = max((finding.saving_ns.expected for finding in of_step), default=0.0)
    wall = step_model.wall_ns
    if present is None or step_model.device == "cpu" or busy < BUSY_DEVICE.value * wall:
        return []
    if fixable > WORTH_FIXING.value * wall or _nearness(step_model) < NEAR_ROOF.value:
        return []
    needed = step_model.host_counters.peak_bytes or present.memory_gb * 1e9
    rows = []
    for chip in datasheet.chips():
        if chip.vendor in _VENDORS and chip.memory_gb * 1e9 >= needed and chip.name != present.name:
            row = _on(step_model, present, chip)
            if row is not None and row.wall_ns.expected < FASTER_CHIP.value * wall:
                rows.append(row)
    return sorted(rows, key=lambda row: row.wall_ns.expected)[:_MOST_CHIPS]


def _nearness(step_model: StepModel) -> float:
    """The roofline minimums as a share of the busy time."""
    bounded = [record for record in step_model.op_records if record.bound in ("compute", "memory")]
    floors = sum(record.floor_ns or 0.0 for record in bounded)
    return floors / max(1.0, sum(record.exposed_ns for record in step_model.op_records))


def _on(step_model: StepModel, here: datasheet.Chip, there: datasheet.Chip) -> ChipRow | None:
    """The step on another chip; None if one of the two datasheets lacks a figure."""
    ratios = {}
    for index, record in enumerate(step_model.op_records):
        if record.bound not in ("compute", "memory"):
            continue
        before, after = (_floor(chip, record) for chip in (here, there))
        if before is None or after is None:
            return None
        ratios[index] = after / before
    slow, expected, fast = (
        SAME_VENDOR_SHARE.low_to_high
        if here.vendor == there.vendor
        else OTHER_VENDOR_SHARE.low_to_high
    )

    def wall(reached: float) -> float:
        op_ns = {i: step_model.op_records[i].ns * r / reached for i, r in ratios.items()}
        return step_model.wall_ns - step_model.saving(Edit.set_time(op_ns))

    return ChipRow(
        chip=there.name, wall_ns=Estimate(low=wall(fast), expected=wall(expected), high=wall(slow))
    )


def _floor(chip: datasheet.Chip, record: OpRecord) -> float | None:
    """The operator's roofline minimum by the datasheet, in any unit of time."""
    assert record.cost is not None
    memory = chip.figures.get("memory.dram")
    if memory is None:
        return None
    longest = record.cost.bytes / memory.value
    for unit, amount in record.cost.flops.items():
        if not amount:
            continue
        figure = chip.figures.get(unit)
        if figure is None:
            return None
        longest = max(longest, amount / figure.value)
    return longest or None
