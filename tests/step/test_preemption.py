"""Time lost inside single calls is taken off those, and moves what follows forward."""

import msgspec
import numpy as np
import pytest

from boundby.model import HostKind, OpCall, Phase, PhaseMarks, Samples, Timeline
from boundby.step.preemption import without_preemption
from tests.timelines import US, Scene, tensor

SMALL = OpCall(name="aten::add", args=(tensor(10), tensor(10)))


def calls(*took: float, call: OpCall = SMALL) -> Timeline:
    """One operator after the other, each inside a function and followed by 5 us of Python."""
    scene = Scene(end=sum(took) + 10 * len(took))
    at = 0.0
    for us in took:
        scene.on_host(at, at + us + 5, HostKind.PYTHON, "train.py(3): add")
        scene.on_host(at, at + us, call=call)
        at += us + 10
    return scene.timeline()


def took(timeline: Timeline) -> list[float]:
    """Durations of the operators in us."""
    host = timeline.host
    found: list[float] = (host.duration_ns[host.kind == HostKind.OP] / US).tolist()
    return found


def test_interrupted_operator_gets_the_time_of_its_peers() -> None:
    before = calls(1, 1, 12601, 1, 2)
    after, left = without_preemption(before, 12_600 * US)
    assert took(after) == [1, 1, 1, 1, 2]
    assert left == 0
    assert before.wall_ns - after.wall_ns == 12_600 * US
    host = after.host
    ends = host.start_ns + host.duration_ns
    inner = np.flatnonzero(host.parent >= 0)
    assert (ends[inner] <= ends[host.parent[inner]]).all()
    # Between two calls as much time passes as before.
    assert host.start_ns[host.kind == HostKind.OP].tolist() == [0, 11e3, 22e3, 33e3, 44e3]


def test_step_without_preemption_is_unchanged() -> None:
    before = calls(1, 1, 12601, 1)
    assert without_preemption(before, 0.0) == (before, 0.0)


def test_a_call_longer_than_the_lost_time_loses_no_more_than_that() -> None:
    after, left = without_preemption(calls(1, 1, 12601, 1), 5000.0 * US)
    assert took(after) == [1, 1, 7601, 1] and left == 0


def test_unlocated_lost_time_remains() -> None:
    """Of 10 ms, 4 were lost in one operator; the others differ too little."""
    after, left = without_preemption(calls(100, 4100, 100, 300, 100), 10_000.0 * US)
    assert took(after) == [100, 100, 100, 300, 100]
    assert left == pytest.approx(6000 * US)


def test_calls_that_always_differ_are_shortened_alike_except_short_ones() -> None:
    """A thread that waits for a core does so for half a millisecond or longer."""
    before = calls(1000, 3000, 400, 5000, 7000, 9000, 11000)
    after, left = without_preemption(before, 18_000.0 * US)
    assert took(after) == [500, 1500, 400, 2500, 3500, 4500, 5500]
    assert left == 0


def test_call_without_peers_keeps_a_part() -> None:
    before = calls(9000, 1, call=OpCall(name="aten::mm", args=(tensor(8, 8), tensor(8, 8))))
    after, left = without_preemption(before, 9000.0 * US)
    assert took(after) == pytest.approx([900, 1])
    assert left == pytest.approx(900 * US)


def test_waiting_for_a_batch_of_a_worker_needs_no_core() -> None:
    scene = Scene(end=10_000)
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    scene.on_host(0, 5000, HostKind.DATA, name)
    scene.on_host(5000, 10_000, call=SMALL)
    after, left = without_preemption(scene.timeline(), 4000.0 * US)
    assert after.host.duration_ns.tolist() == [5000 * US, 1000 * US]
    assert left == 0


def test_an_operator_of_its_own_shape_is_compared_with_larger_ones() -> None:
    scene = Scene(end=9000)
    for at, (us, size) in enumerate([(20, 1000), (30, 1000), (5020, 10), (20, 1000), (20, 1000)]):
        start = 30 * at + (5000 if at > 2 else 0)
        scene.on_host(start, start + us, call=OpCall(name="aten::relu", args=(tensor(size),)))
    after, left = without_preemption(scene.timeline(), 5000.0 * US)
    assert took(after) == [20, 30, 20, 20, 20] and left == 0
    smaller = msgspec.structs.replace(
        scene.timeline(),
        calls=[OpCall(name="aten::relu", args=(tensor(size),)) for size in (5, 5, 10, 5, 5)],
    )
    after, _ = without_preemption(smaller, 5000.0 * US)
    # 5 of 8.9 ms are lost in two long stretches: in this one, and after the last call.
    assert took(after) == pytest.approx([20, 30, 2193, 20, 20], rel=1e-3)


def test_interrupted_python_gets_the_time_of_other_calls() -> None:
    """Its operators keep their times; later samples and phases move forward."""
    scene = Scene(end=4100)
    for at in range(5):
        start = 20.0 * at + (4000 if at > 2 else 0)
        longer = 4000 if at == 2 else 0
        scene.on_host(start, start + 15 + longer, HostKind.PYTHON, "train.py(3): add")
        scene.on_host(start, start + 5, call=SMALL)
    before = msgspec.structs.replace(
        scene.timeline(),
        samples=Samples(
            start_ns=np.array([10 * US, 4090 * US]),
            row=np.array([0, 8], np.int32),
            source=np.array([0, 0], np.int32),
        ),
        phases=PhaseMarks(
            start_ns=np.array([20 * US, 4060 * US]),
            phase=np.array([Phase.FORWARD, Phase.BACKWARD], np.int8),
        ),
    )
    after, left = without_preemption(before, 4000.0 * US)
    assert left == 0 and took(after) == [5] * 5
    assert after.host.duration_ns[::2].tolist() == [15 * US] * 5
    assert after.samples is not None and after.samples.start_ns.tolist() == [10 * US, 90 * US]
    assert after.phases is not None and after.phases.start_ns.tolist() == [20 * US, 60 * US]
