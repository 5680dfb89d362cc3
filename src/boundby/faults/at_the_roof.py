"""The device runs near its roofs, and no fault remains.

What it looks for
    A device that is busy for nearly the whole step with work near its roofs, and no other fault
    that would save a twentieth of the step.

Why it costs time
    The model needs this arithmetic and memory traffic, and the chip is at its limits.

What to change
    Do less work (a smaller model, lower precision, fewer tokens), or use more or faster chips. The
    report names chips of the datasheet table that would be faster, each with the step simulated on
    its roofs and the same host.

When it does not help
    A chip that is twice as fast needs a host that issues twice as fast: the simulation shows the
    limit. Chips reach different shares of their datasheet figures: of the printed bfloat16 rate,
    products reached 87% on an A100, 80% on an H100, 78% on a B200 and 51% on an MI300X.

Measured on
    Not yet measured. It is a note, not a fix: it says that no other fault was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.faults.fault import Detection, Fault
from boundby.hardware import datasheet
from boundby.model.diagnosis import ChipRow, Estimate, Finding
from boundby.step.model import Edit, StepModel
from boundby.step.op_record import OpRecord

_BUSY = 0.85
# Of all busy time, the floors of its work: by the datasheet 0.49 in a compiled BERT-large, 0.15 in
# an eager ResNet-18 with slow kernels.
_NEAR = 0.4
_WORTH_MENDING = 0.05
_MOST_CHIPS = 3
_VENDORS = ("nvidia", "amd")
# How much of the other sheet is had beside this one's: a newer chip of the same vendor reaches less
# of its own (80 to 87% were seen), another vendor's may reach half of it.
_SAME_VENDOR = (0.75, 0.9, 1.0)
_OTHER_VENDOR = (0.5, 0.7, 1.0)
# A chip that takes the step less far than this is no answer.
_FASTER = 0.9


def detect(_: StepModel) -> Detection | None:
    """Never a finding: a step that is well tuned must not be told that it has a fault."""
    return None


def bigger_chips(step_model: StepModel, findings: Sequence[Finding]) -> list[ChipRow]:
    """The chips on which the step would run fastest; none where there is anything to mend."""
    machine = step_model.machine
    here = next((chip for chip in datasheet.chips() if chip.name == machine.chip), None)
    busy = sum(work.exposed_ns for work in step_model.op_records)
    mendable = max((finding.saving_ns.expected for finding in findings), default=0.0)
    wall = step_model.wall_ns
    if here is None or step_model.script is None or busy < _BUSY * wall:
        return []
    if mendable > _WORTH_MENDING * wall or _nearness(step_model) < _NEAR:
        return []
    needed = step_model.host_counters.peak_bytes or here.memory_gb * 1e9
    rows = []
    for chip in datasheet.chips():
        if chip.vendor in _VENDORS and chip.memory_gb * 1e9 >= needed and chip.name != here.name:
            row = _on(step_model, here, chip)
            if row is not None and row.wall_ns.expected < _FASTER * wall:
                rows.append(row)
    return sorted(rows, key=lambda row: row.wall_ns.expected)[:_MOST_CHIPS]


def _nearness(step_model: StepModel) -> float:
    """How much of the step's time its work needs by its roofs."""
    known = [work for work in step_model.op_records if work.bound in ("compute", "memory")]
    floors = sum(work.floor_ns or 0.0 for work in known)
    return floors / max(1.0, sum(work.exposed_ns for work in step_model.op_records))


def _on(step_model: StepModel, here: datasheet.Chip, there: datasheet.Chip) -> ChipRow | None:
    """The step on another chip, by the ratio of the two sheets; None where one lacks a figure."""
    ratios = {}
    for index, work in enumerate(step_model.op_records):
        if work.bound not in ("compute", "memory"):
            continue
        before, after = (_floor(chip, work) for chip in (here, there))
        if before is None or after is None:
            return None
        ratios[index] = after / before
    slow, expected, fast = _SAME_VENDOR if here.vendor == there.vendor else _OTHER_VENDOR

    def wall(had: float) -> float:
        work_ns = {i: step_model.op_records[i].ns * r / had for i, r in ratios.items()}
        return step_model.wall_ns - step_model.saving(Edit(work_ns=work_ns))

    return ChipRow(
        chip=there.name, wall_ns=Estimate(low=wall(fast), expected=wall(expected), high=wall(slow))
    )


def _floor(chip: datasheet.Chip, work: OpRecord) -> float | None:
    """The work's roofline time on paper, in any unit of time."""
    assert work.cost is not None
    memory = chip.figures.get("memory.dram")
    if memory is None:
        return None
    longest = work.cost.bytes / memory.value
    for unit, amount in work.cost.flops.items():
        if not amount:
            continue
        figure = chip.figures.get(unit)
        if figure is None:
            return None
        longest = max(longest, amount / figure.value)
    return longest or None


FAULT = Fault(fault="at-the-roof", group="compute", document=__doc__, detect=detect)
