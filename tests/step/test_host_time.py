"""Overhead at source lines: by hand where it can be done by hand, and that nothing is lost."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.analysis.account import Attribution, attribute_step
from boundby.model import HostKind, OpCall, Samples, Timeline
from boundby.model.intervals import union
from boundby.step.host_intervals import find_host_intervals, intervals_at
from boundby.step.host_time import idle_time_by_line
from boundby.step.idle_causes import gap_causes
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor

MACHINE = round_machine()
ADD = OpCall(name="aten::add", args=(tensor(1_000_000), tensor(1_000_000)))
PYTHON, LAUNCH, SYNC, DATA = HostKind.PYTHON, HostKind.LAUNCH, HostKind.SYNC, HostKind.DATA


def at_lines(scene: Scene, lines: list[int], called: list[int] | None = None) -> Timeline:
    """The scene with a line for each of its host events, in the order they were added."""
    timeline = scene.timeline()
    host = msgspec.structs.replace(
        timeline.host,
        source=np.array(lines, np.int32),
        called=None if called is None else np.array(called, np.int32),
    )
    sources = [f"train.py:{number}" for number in range(max(lines) + 1)]
    return msgspec.structs.replace(timeline, host=host, sources=sources)


def overhead(attribution: Attribution) -> dict[str, dict[str, float]]:
    causes = ("python", "launch", "sync", "data", "unseen")
    found = {}
    for row in attribution.lines:
        mine = {part: round(row.parts[part] / US, 3) for part in causes if row.parts.get(part)}
        if mine:
            found[row.where.removeprefix("train.py:")] = mine
    return found


def check_sums(attribution: Attribution, wall_ns: float) -> None:
    """The lines are the step, and by group and by part they are the account."""
    assert sum(row.ns for row in attribution.lines) == pytest.approx(wall_ns)
    assert sum(row.share for row in attribution.lines) == pytest.approx(1.0)
    assert all(ns >= 0 for row in attribution.lines for ns in row.groups.values())
    for name, group in attribution.account.groups().items():
        assert sum(row.groups.get(name, 0.0) for row in attribution.lines) == pytest.approx(
            group.ns, abs=1e-3
        )
        for part, ns in group.parts.items():
            assert sum(row.parts.get(part, 0.0) for row in attribution.lines) == pytest.approx(
                ns, abs=1e-3
            )


def test_idle_time_is_attributed_to_the_host_line() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    scene.on_host(0, 20, DATA, "enumerate(DataLoader)")
    scene.on_host(20, 50, PYTHON, "slow")  # 30 us of a function that calls nothing
    scene.on_host(60, 70, call=ADD)
    launch = scene.on_host(65, 68, LAUNCH, "cudaLaunchKernel")
    scene.on_device(70, 100, launch=launch)
    timeline = at_lines(scene, [1, 2, 3, 4, 4], called=[1, 2, 3, 4, 4])
    attribution = attribute_step(timeline, MACHINE, wall_ns=100 * US)
    assert overhead(attribution) == {
        "2": {"data": 20.0},
        "3": {"python": 30.0},
        # 50 to 60 comes before the operator that line 4 calls; 65 to 70 is the launch.
        "4": {"python": 15.0, "launch": 5.0},
    }
    check_sums(attribution, 100 * US)


def test_sync_idle_time_is_limited_to_its_duration() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    first = scene.on_host(0, 2, LAUNCH, "cudaLaunchKernel")
    scene.on_host(10, 20, SYNC, "cudaStreamSynchronize")
    scene.on_host(20, 78, PYTHON, "slow")
    second = scene.on_host(78, 80, LAUNCH, "cudaLaunchKernel")
    scene.on_device(2, 20, launch=first)
    scene.on_device(80, 100, launch=second)
    timeline = at_lines(scene, [1, 2, 3, 4, 5], called=[1, 2, 3, 4, 5])
    gaps = gap_causes(timeline, *union(timeline.device.start_ns, timeline.device.duration_ns))
    totals = {label: float(part.sum()) for label, part in gaps.parts.items()}
    assert totals["sync"] == 12 * US  # held for 10, and the next launch
    found = {
        (one.label, one.source): one.ns / US
        for one in idle_time_by_line(timeline, find_host_intervals(timeline), gaps).scaled(totals)
    }
    # It held the host for 10 us of the 60 that follow, and the launch takes 2: the other 48 are the
    # function's.
    assert found["sync", 3] == pytest.approx(10)
    assert found["python", 4] == pytest.approx(48)
    assert found["sync", 5] == pytest.approx(2)


def test_cpu_lines_contain_time_outside_of_kernels() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    scene.on_host(20, 60, call=ADD)
    scene.on_host(80, 100, PYTHON, "slow")
    timeline = at_lines(scene, [1, 2, 3], called=[1, 2, 3])
    attribution = attribute_step(timeline, MACHINE, wall_ns=100 * US)
    # An eager operator costs 8 us here, and 32 are its kernel; 20 us lead to each of the calls.
    assert overhead(attribution) == {"2": {"python": 28.0}, "3": {"python": 40.0}}
    check_sums(attribution, 100 * US)


def test_sampled_function_has_its_sampled_line() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    scene.on_host(60, 100, PYTHON, "slow")
    timeline = at_lines(scene, [1, 5], called=[1, 5])
    samples = Samples(
        start_ns=np.array([10, 30], np.int64) * US,
        row=np.array([0, 0], np.int32),
        source=np.array([2, 3], np.int32),
    )
    timeline = msgspec.structs.replace(timeline, samples=samples)
    attribution = attribute_step(timeline, MACHINE, wall_ns=100 * US)
    # Each sample counts for the time nearest to it: up to 20 us, and from there to the call.
    assert overhead(attribution) == {
        "2": {"python": 20.0},
        "3": {"python": 40.0},
        "5": {"python": 40.0},
    }


def test_short_function_uses_samples_of_other_calls() -> None:
    """Four calls of 20 us, of which one was sampled in line 7; 5 us of a call without samples."""
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    for begins in (0, 20, 40, 60):
        scene.on_host(begins, begins + 20, PYTHON, "train.py(6): read")
        scene.on_host(begins + 18, begins + 20, PYTHON, "rand")
    scene.on_host(85, 100, PYTHON, "slow")
    lines = [1, *(6, 8) * 4, 3]
    timeline = at_lines(scene, lines, called=[1, *(2, 8) * 4, 3])
    samples = Samples(
        start_ns=np.array([25], np.int64) * US,
        row=np.array([3], np.int32),
        source=np.array([7], np.int32),
    )
    timeline = msgspec.structs.replace(timeline, samples=samples)
    attribution = attribute_step(timeline, MACHINE, wall_ns=100 * US)
    assert overhead(attribution) == {
        "7": {"python": pytest.approx(72.0)},
        "8": {"python": pytest.approx(8.0)},
        "3": {"python": pytest.approx(20.0)},
    }


def test_observer_time_belongs_to_no_line() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): step")
    scene.on_host(0, 40, PYTHON, "slow")
    scene.on_host(40, 90, HostKind.OBSERVER, "look")
    scene.on_host(90, 100, PYTHON, "quick")
    timeline = at_lines(scene, [1, 2, 3, 4], called=[1, 2, 3, 4])
    found = overhead(attribute_step(timeline, MACHINE, wall_ns=100 * US))
    # What is left of the step is divided as the script's own 50 us are.
    assert found == {"2": {"python": pytest.approx(80.0)}, "4": {"python": pytest.approx(20.0)}}


def test_own_time_without_samples_is_at_the_definition() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, PYTHON, "train.py(1): main")
    scene.on_host(40, 90, PYTHON, "train.py(7): slow")
    timeline = at_lines(scene, [1, 7])
    attribution = attribute_step(timeline, MACHINE, wall_ns=100 * US)
    assert overhead(attribution) == {"1": {"python": 50.0}, "7": {"python": 50.0}}


@st.composite
def scenes(draw: Any) -> tuple[Timeline, float]:
    """Steps of one or two threads, whose functions hold operators, launches, syncs and waits."""
    scene = Scene(end=1000)
    lines, clock, free = [0], 0.0, 0.0
    scene.on_host(0, 1000, PYTHON, "train.py(1): step")
    on_device = draw(st.booleans())
    for _ in range(draw(st.integers(0, 12))):
        clock += draw(st.integers(0, 30))
        length, kind = draw(st.integers(4, 40)), draw(st.sampled_from(["op", "sync", "data", "py"]))
        line = draw(st.integers(-1, 4))
        lines.append(line)
        if kind == "op":
            scene.on_host(clock, clock + length, call=ADD)
            if on_device:
                lines.append(line)
                launch = scene.on_host(clock + 1, clock + 3, LAUNCH, "cudaLaunchKernel")
                begins = max(free, clock + 3 + draw(st.integers(0, 30)))
                free = begins + draw(st.integers(1, 60))
                scene.on_device(begins, free, launch=launch)
        else:
            kinds = {"sync": SYNC, "data": DATA, "py": PYTHON}
            scene.on_host(clock, clock + length, kinds[kind], kind)
        clock += length
    timeline = at_lines(scene, lines)
    rows = draw(st.lists(st.integers(0, 999), max_size=4, unique=True).map(sorted))
    samples = Samples(
        start_ns=np.array(rows, np.int64) * US,
        row=np.zeros(len(rows), np.int32),
        source=np.zeros(len(rows), np.int32),
    )
    return msgspec.structs.replace(timeline, samples=samples), draw(
        st.sampled_from([0.4, 1.0, 1.6])
    )


PHASES = {"forward": 300.0 * US, "other": 50.0 * US, "backward": 200.0 * US}


@settings(max_examples=150, deadline=None)
@given(scenes(), st.sampled_from([None, PHASES]))
def test_lines_always_add_up_to_the_step(
    made: tuple[Timeline, float], phases: dict[str, float] | None
) -> None:
    timeline, pace = made
    wall_ns = pace * 1000 * US
    check_sums(attribute_step(timeline, MACHINE, wall_ns=wall_ns, phases=phases), wall_ns)


@settings(max_examples=100, deadline=None)
@given(scenes())
def test_host_intervals_cover_the_step_without_overlap(made: tuple[Timeline, float]) -> None:
    timeline, _ = made
    where = find_host_intervals(timeline)
    assert where.start_ns[0] == timeline.start_ns
    assert where.end_ns[-1] == timeline.end_ns
    assert np.array_equal(where.start_ns[1:], where.end_ns[:-1])
    same = intervals_at(where, timeline, timeline)
    assert np.array_equal(same.start_ns, where.start_ns)
    assert np.array_equal(same.end_ns, where.end_ns)
