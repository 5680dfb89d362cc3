"""What the profiler cost: by event and by Python's own code, phase by phase."""

import msgspec
import numpy as np
import pytest

from boundby.model import HostKind, Phase, PhaseMarks, ProfilerCallCost, Timeline
from boundby.step.host_intervals import find_host_intervals
from boundby.step.profiler_overhead import ProfilerOverhead, find_profiler_overhead
from tests.timelines import US, Scene

FUNCTION, MARK, OPERATOR = 0, 1, 2
CALL_COST = ProfilerCallCost(function_ns=1000, builtin_ns=500, of_python=0.4)


def profiled(call_cost: ProfilerCallCost | None, *, marked: bool = True) -> Timeline:
    """A loop of 100 us without a call; then, in a phase of its own, 10 operators of 10 us."""
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "train.py(1): loop")
    scene.on_host(100, 100, HostKind.RUNTIME, "nothing")
    for at in range(100, 200, 10):
        scene.on_host(at, at + 10, name="aten::mul")
    marks = phase_marks((100, Phase.FORWARD)) if marked else None
    return msgspec.structs.replace(scene.timeline(), call_cost=call_cost, phases=marks)


def phase_marks(*marks: tuple[int, Phase]) -> PhaseMarks:
    return PhaseMarks(
        start_ns=np.array([at * US for at, _ in marks], np.int64),
        phase=np.array([phase for _, phase in marks], np.int8),
    )


def overhead(
    wall_us: float,
    phases: dict[str, float] | None,
    call_cost: ProfilerCallCost | None = CALL_COST,
    marked: bool = True,
) -> ProfilerOverhead:
    timeline = profiled(call_cost, marked=marked)
    clean = {name: ns * US for name, ns in (phases or {}).items()}
    return find_profiler_overhead(
        timeline, find_host_intervals(timeline), wall_ns=wall_us * US, phases=clean
    )


def test_profiler_overhead_is_removed_per_phase() -> None:
    # Clean the loop takes 59 us: 41 are the profiler's, 40 by code and 1 by the call. The operators
    # take 89, and 11 are its.
    found = overhead(148, {"other": 59, "forward": 89})
    assert found.stretch_ns.sum() == pytest.approx(40 * US)
    assert found.event_ns[FUNCTION] == pytest.approx(1 * US)
    assert found.event_ns[MARK:] == pytest.approx(np.full(11, 1 * US))


def test_phase_without_slowdown_has_no_profiler_overhead() -> None:
    found = overhead(189, {"other": 100, "forward": 89})
    assert found.stretch_ns.sum() == 0
    assert found.event_ns[FUNCTION] == 0
    assert found.event_ns[OPERATOR] == pytest.approx(1 * US)


@pytest.mark.parametrize("wall", [20.0, 110.0, 150.0, 190.0, 200.0, 250.0])
@pytest.mark.parametrize("call_cost", [None, CALL_COST, ProfilerCallCost()], ids=str)
@pytest.mark.parametrize("phases", [None, {"other": 60.0, "forward": 72.0}], ids=str)
@pytest.mark.parametrize("marked", [True, False])
def test_overhead_is_limited_by_the_number_of_events(
    wall: float, call_cost: ProfilerCallCost | None, phases: dict[str, float] | None, marked: bool
) -> None:
    found = overhead(wall, phases, call_cost, marked)
    explained = (found.event_ns.sum() + found.stretch_ns.sum()) / US
    longer = max(0.0, 200 - wall)
    assert explained <= longer + 1e-6
    assert found.total_ns == pytest.approx(explained * US)
    # At the most four times what each costs on its own: of an operator, 2.6 functions.
    function = 1.0 if call_cost is CALL_COST else 0.4
    most = 4 * function * np.array([1.0, *[2.6] * 11])
    assert (found.event_ns >= 0).all()
    assert (found.event_ns[OPERATOR:] <= most[OPERATOR:] * US + 1e-6).all()
    if call_cost is None and phases is None and not marked:  # all of the step is one phase
        assert explained == pytest.approx(min(longer, most.sum()))
    assert found.stretch_ns.sum() <= 0.8 * 100 * US


def test_cpu_wait_includes_time_in_the_profiler() -> None:
    timeline = profiled(ProfilerCallCost(), marked=False)
    where = find_host_intervals(timeline)
    most, waiting = (
        find_profiler_overhead(timeline, where, wall_ns=20 * US, on_core=share)
        for share in (1.0, 0.5)
    )
    assert most.event_ns.sum() < waiting.event_ns.sum() <= 2 * most.event_ns.sum() + 1e-6
    assert waiting.total_ns <= 180 * US + 1e-6


def test_operators_carry_the_overhead_without_a_measured_call_cost() -> None:
    found = overhead(150, None, None, marked=False)
    assert found.event_ns[OPERATOR] == pytest.approx(2.6 * found.event_ns[FUNCTION])


def test_leading_other_phase_belongs_to_the_forward() -> None:
    marks = phase_marks((100, Phase.BACKWARD))
    timeline = msgspec.structs.replace(profiled(CALL_COST), phases=marks)
    clean = {"forward": 59.0 * US, "backward": 89.0 * US}
    found = find_profiler_overhead(
        timeline, find_host_intervals(timeline), wall_ns=148 * US, phases=clean
    )
    assert found.stretch_ns.sum() == pytest.approx(40 * US)
    assert found.event_ns[OPERATOR] == pytest.approx(1 * US)
