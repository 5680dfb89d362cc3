"""Several faults fixed together: the step's time with every combination of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.faults.fault import Fault
from boundby.model.estimate import Estimate
from boundby.model.finding import WhatIf
from boundby.step.model import Edit, StepModel
from boundby.step.prediction import is_known, saving_of, wall_of

_SCENARIOS = ("low", "expected", "high")
_GROUP_OF = {
    "compute": "compute",
    "memory": "bandwidth",
    "network": "bandwidth",
    "host_link": "bandwidth",
    "small": "overhead",
    "python": "overhead",
}
# The most faults combined. Each combination is simulated in every scenario: four faults have 15,
# six have 63.
_MOST = 4


def combined(steps: Sequence[StepModel], faults: Sequence[Fault]) -> list[WhatIf]:
    """The step's time with every combination of faults that do not exclude each other.

    Fixes do not simply add up: each is applied to the step as the others left it, in the order of
    their stages. The first row is the unchanged step, which the others are compared with.
    """
    ordered = sorted(faults, key=lambda fault: fault.stage)
    chosen = _most_promising(steps[0], ordered) if len(ordered) > _MOST else ordered
    runs = [(steps[0], scenario) for scenario in _SCENARIOS]
    runs += [(step, "expected") for step in steps[1:]]
    walls: dict[tuple[str, ...], list[float]] = {}
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    for step, scenario in runs if chosen else []:
        before = step.evaluate(Edit())
        unedited = ((), step, before)
        for fixed, edited, takes in (unedited, *_combinations(step, before, chosen, scenario)):
            wall = wall_of(takes, step, steps[0])
            walls.setdefault(fixed, []).append(wall)
            if step is steps[0] and scenario == "expected":
                groups[fixed] = _groups(edited, wall)
    middle = _SCENARIOS.index("expected")
    known = is_known(steps)
    return [
        WhatIf(
            faults=list(fixed),
            wall_ns=Estimate(low=min(found), expected=found[middle], high=max(found)),
            saving_ns=saving_of(walls[()], found, middle, known=known) if fixed else None,
            groups=groups[fixed],
        )
        for fixed, found in walls.items()
    ]


def _most_promising(step: StepModel, faults: Sequence[Fault]) -> list[Fault]:
    """The faults to combine, in the given order, chosen one by one by what they save together.

    A fix that saves nothing alone may save much with others: launches, once kernels are short.
    """
    taken: list[Fault] = []
    while len(taken) < _MOST:
        left = [fault for fault in faults if fault not in taken]
        walls = [_fixed_ns(step, _ordered([*taken, fault], faults)) for fault in left]
        taken.append(left[walls.index(min(walls))])
    return _ordered(taken, faults)


def _ordered(some: Sequence[Fault], faults: Sequence[Fault]) -> list[Fault]:
    return [fault for fault in faults if fault in some]


def _fixed_ns(step: StepModel, faults: Sequence[Fault]) -> float:
    """The expected time with some faults fixed; of two that exclude each other, the first."""
    taken: list[Fault] = []
    for fault in faults:
        if any(_exclude(fault, other) for other in taken):
            continue
        detection = fault.find_in(step)
        step = step.apply(detection.expected) if detection else step
        taken.append(fault)
    return step.evaluate(Edit())


def _exclude(one: Fault, other: Fault) -> bool:
    return one.id in other.excludes or other.id in one.excludes


def _combinations(
    step: StepModel,
    before_ns: float,
    faults: Sequence[Fault],
    scenario: str,
    taken: tuple[Fault, ...] = (),
) -> Iterator[tuple[tuple[str, ...], StepModel, float]]:
    """The step with every combination of faults fixed, each built on the one it extends, and its
    time. `before_ns` is that of the unchanged step."""
    for position, fault in enumerate(faults):
        if any(_exclude(fault, other) for other in taken):
            continue
        detection = fault.find_in(step)
        edited, takes = step, before_ns
        if detection:
            edited = step.apply(getattr(detection, scenario))
            takes = edited.evaluate(Edit())
        chosen = (*taken, fault)
        yield tuple(one.id for one in chosen), edited, takes
        yield from _combinations(edited, takes, faults[position + 1 :], scenario, chosen)


def _groups(step: StepModel, wall_ns: float) -> dict[str, float]:
    """The groups of an edited step: its operators by bound; the rest is overhead."""
    groups = {"compute": 0.0, "bandwidth": 0.0, "overhead": 0.0, "unknown": 0.0}
    for record in step.op_records:
        groups[_GROUP_OF.get(record.bound, "unknown")] += record.exposed_ns
    busy = sum(groups.values())
    if busy > wall_ns:
        return {name: ns * wall_ns / busy for name, ns in groups.items()}
    groups["overhead"] += wall_ns - busy
    return groups
