"""Several remedies together: the step's time with every combination of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.faults.fault import Fault
from boundby.model.diagnosis import Estimate, WhatIf
from boundby.step.model import Edit, StepModel

_SCENARIOS = ("worst", "expected", "best")
_GROUP_OF = {
    "compute": "compute",
    "memory": "bandwidth",
    "network": "bandwidth",
    "host_link": "bandwidth",
    "small": "overhead",
}
# Combinations are worked out beforehand for this many: there are 63 of six.
_MOST = 6


def combined(step_models: Sequence[StepModel], remedies: Sequence[Fault]) -> list[WhatIf]:
    """Every combination of remedies that do not exclude each other: the step's time with it.

    Fixes do not simply add up: each is imagined in the step as the others left it. The first is
    none of them: the step that all are to be held against, which a trace's profiled one is not.
    """
    mended = _most_promising(step_models[0], remedies) if len(remedies) > _MOST else remedies
    runs = [(step_models[0], scenario) for scenario in _SCENARIOS]
    runs += [(step_model, "expected") for step_model in step_models[1:]]
    walls: dict[tuple[str, ...], list[float]] = {}
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    for step_model, scenario in runs if mended else []:
        unmended: tuple[tuple[str, ...], StepModel] = ((), step_model)
        for faults, changed in (unmended, *_combinations(step_model, mended, scenario)):
            wall = wall_of(changed.evaluate(Edit()), step_model, step_models[0])
            walls.setdefault(faults, []).append(wall)
            if step_model is step_models[0] and scenario == "expected":
                groups[faults] = _groups(changed, wall)
    middle = _SCENARIOS.index("expected")
    known = is_known(step_models)
    return [
        WhatIf(
            faults=list(faults),
            wall_ns=Estimate(low=min(found), expected=found[middle], high=max(found)),
            saving_ns=saving_of(walls[()], found, middle, known=known) if faults else None,
            groups=groups[faults],
        )
        for faults, found in walls.items()
    ]


def saving_of(
    unmended: Sequence[float], mended: Sequence[float], likeliest: int, *, known: bool = True
) -> Estimate:
    """What is saved, of several pictures' times, of which one is the likeliest.

    Each is held against the step as it is in the same picture: a host that comes to be slower is
    so for both. And, where the step's time is known, against that: it may be so for one alone.
    """
    savings = [before - after for before, after in zip(unmended, mended, strict=True)]
    savings += [unmended[likeliest] - after for after in mended if known]
    expected = unmended[likeliest] - mended[likeliest]
    return Estimate(low=min(savings), expected=expected, high=max(savings))


def _most_promising(step_model: StepModel, remedies: Sequence[Fault]) -> list[Fault]:
    """Those worth combining, in the order given: each in turn the one that then saves most.

    What saves nothing alone may save much once others are made: launches, when kernels are short.
    """
    taken: list[Fault] = []
    while len(taken) < _MOST:
        left = [one for one in remedies if one not in taken]
        walls = [_made(step_model, _ordered([*taken, one], remedies)) for one in left]
        taken.append(left[walls.index(min(walls))])
    return _ordered(taken, remedies)


def _ordered(some: Sequence[Fault], remedies: Sequence[Fault]) -> list[Fault]:
    return [one for one in remedies if one in some]


def _made(step_model: StepModel, remedies: Sequence[Fault]) -> float:
    """The step with some remedies made, as expected; of two that exclude each other, the first."""
    taken: list[Fault] = []
    for remedy in remedies:
        if any(_exclude(remedy, one) for one in taken):
            continue
        detection = remedy.find_in(step_model)
        step_model = step_model.apply(detection.expected) if detection else step_model
        taken.append(remedy)
    return step_model.evaluate(Edit())


def _exclude(one: Fault, other: Fault) -> bool:
    return one.id in other.excludes or other.id in one.excludes


def _combinations(
    step_model: StepModel, remedies: Sequence[Fault], scenario: str, taken: tuple[Fault, ...] = ()
) -> Iterator[tuple[tuple[str, ...], StepModel]]:
    """The step with every combination of remedies made, each built on the one it extends."""
    for position, remedy in enumerate(remedies):
        if any(_exclude(remedy, one) for one in taken):
            continue
        detection = remedy.find_in(step_model)
        changed = step_model.apply(getattr(detection, scenario)) if detection else step_model
        chosen = (*taken, remedy)
        yield tuple(one.id for one in chosen), changed
        yield from _combinations(changed, remedies[position + 1 :], scenario, chosen)


def _groups(step_model: StepModel, wall_ns: float) -> dict[str, float]:
    """Where the imagined step's time goes: its work by bound, and the host for the rest."""
    groups = {"compute": 0.0, "bandwidth": 0.0, "overhead": 0.0, "unknown": 0.0}
    for work in step_model.op_records:
        groups[_GROUP_OF.get(work.bound, "unknown")] += work.exposed_ns
    busy = sum(groups.values())
    if busy > wall_ns:
        return {name: ns * wall_ns / busy for name, ns in groups.items()}
    groups["overhead"] += wall_ns - busy
    return groups


def is_known(step_models: Sequence[StepModel]) -> bool:
    """Whether the clean step's time is: then it is the same in all pictures of it."""
    return len({step_model.wall_ns for step_model in step_models}) == 1


def wall_of(replayed_ns: float, step_model: StepModel, likeliest: StepModel) -> float:
    """What a replayed time is of the clean step, in one of several pictures.

    Where the clean step's time is known, it is the same in all of them: only the host's part in
    the imagined step differs. In a trace the step itself is a guess in each.
    """
    known = is_known([step_model, likeliest])
    return step_model.wall_ns * replayed_ns / (likeliest if known else step_model).base_ns
