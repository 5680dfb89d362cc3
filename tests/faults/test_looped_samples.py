"""Loops over samples: found by how often a call is made, and on what."""

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.faults.batch_too_small import batches
from boundby.model import HostKind, OpCall, Phase
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from boundby.step.sample_loops import find_sample_loops
from tests.faults.step_models import finding, in_phase, sure
from tests.machines import round_machine
from tests.timelines import Scene, tensor

SAMPLES = 16
ROW = OpCall(name="aten::mul", args=(tensor(784), tensor(784)))
BATCH = OpCall(name="aten::mul", args=(tensor(SAMPLES, 784), tensor(SAMPLES, 784)))
MACHINE = round_machine()


def looping(
    call: OpCall = ROW,
    *,
    count: int = SAMPLES,
    samples: int | None = SAMPLES,
    phase: Phase = Phase.FORWARD,
    line: int = 0,
    on_device: bool = False,
    taken: tuple[int, int] | None = (SAMPLES, 0),
) -> StepModel:
    """So many calls of 20 us, one every 25, each on what is taken out of so many along an axis;
    then 100 us of other work at a line far away."""
    scene = Scene(end=count * 25 + 100)
    for at in range(count):
        if taken is not None:
            of, axis = taken
            select = OpCall(name="aten::select", args=(tensor(of, 784), axis, at % SAMPLES))
            scene.on_host(at * 25, at * 25 + 1, call=select)
        scene.on_host(at * 25 + 1, at * 25 + 20, call=call)
        if on_device:
            launch = scene.on_host(at * 25 + 5, at * 25 + 10, HostKind.LAUNCH, "launch")
            scene.on_device(at * 25 + 11, at * 25 + 14, launch=launch)
    big = OpCall(name="aten::relu", args=(tensor(1_000_000),))
    scene.on_host(count * 25, count * 25 + 100, call=big)
    if on_device:
        launch = scene.on_host(count * 25 + 5, count * 25 + 10, HostKind.LAUNCH, "launch")
        scene.on_device(count * 25 + 11, count * 25 + 90, launch=launch)
    timeline = in_phase(scene.timeline(), phase)
    source = np.full(len(timeline.host), line, np.int32)
    source[-2 if on_device else -1 :] = 1 if line == 0 else line
    host = msgspec.structs.replace(timeline.host, source=source)
    timeline = msgspec.structs.replace(timeline, host=host, sources=["train.py:7", "train.py:90"])
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, MACHINE, wall_ns=wall)
    return build_step_model(
        timeline, MACHINE, attribution, wall_ns=wall, phases={}, samples=samples
    )


@pytest.mark.parametrize("on_device", [False, True])
def test_calls_per_sample_become_one_call(on_device: bool) -> None:
    found = sure(looping(on_device=on_device), "looped-samples")
    assert found.where == ["train.py:7"]
    assert "all 16 samples at once: 16 calls (mul) are 1 then" in found.change
    if not on_device:
        # 400 us are the loop's; what is left of it is one call of 12,544 numbers.
        assert 370e3 < found.saving_ns.expected < 400e3
        assert found.saving_ns.low == pytest.approx(found.saving_ns.expected / 2, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        looping(BATCH),  # as many layers as samples: each works on all of them
        looping(taken=None),  # as many layers, whose biases are cast
        looping(taken=(SAMPLES, 1)),  # of each layer's cache, the newest
        looping(taken=(5, 0)),
        looping(count=SAMPLES - 3),
        looping(count=SAMPLES + 1),
        looping(samples=None),  # from a trace
        looping(count=4, samples=4),
        looping(phase=Phase.OPTIMIZER),  # as many parameters as samples
        looping(line=-1),
    ],
)
def test_other_repetition_is_not_a_sample_loop(other: StepModel) -> None:
    assert find_sample_loops(other) == []
    assert finding(other, "looped-samples") is None


@pytest.mark.parametrize("count", [SAMPLES - 1, SAMPLES, 3 * SAMPLES, 3 * SAMPLES - 1])
def test_sum_may_start_at_the_second_sample_and_a_sample_may_take_several_calls(count: int) -> None:
    (loop,) = find_sample_loops(looping(count=count))
    assert len(list(loop.op_records)) == count


@pytest.mark.parametrize("on_device", [False, True])
def test_loop_over_samples_grows_with_the_batch(on_device: bool) -> None:
    """However small its operators: they are not flat."""
    looped, layered = looping(on_device=on_device), looping(samples=None, on_device=on_device)
    grown, flat = (batches(one)[0].wall_ns.expected / one.wall_ns for one in (looped, layered))
    assert 1.75 < grown < 2.1
    assert flat < 0.85 * grown
    assert finding(looped, "batch-too-small") is None


def test_lines_near_sample_indexing_are_in_the_same_loop() -> None:
    step_model = looping()
    sources = np.where(np.arange(len(step_model.timeline.host)) % 2, 1, 0).astype(np.int32)
    for line, found in (("train.py:9", 1), ("train.py:90", 0), ("other.py:9", 0)):
        host = msgspec.structs.replace(step_model.timeline.host, source=sources)
        timeline = msgspec.structs.replace(
            step_model.timeline, host=host, sources=["train.py:7", line]
        )
        attribution = attribute_step(timeline, MACHINE, wall_ns=step_model.wall_ns)
        moved = build_step_model(
            timeline, MACHINE, attribution, wall_ns=step_model.wall_ns, phases={}, samples=SAMPLES
        )
        assert len(find_sample_loops(moved)) == found
