"""The script's own Python may grow with the batch; the model's and torch's does not."""

import msgspec
import numpy as np
import pytest

from boundby.faults.batch_too_small import batches
from boundby.model import HostKind, OpCall, Phase, Timeline
from boundby.model.estimate import Estimate
from boundby.step.model import StepModel
from tests.faults.step_models import finding, step_model_of, sure
from tests.timelines import Scene, tensor

SMALL = OpCall(name="aten::mm", args=(tensor(8, 8), tensor(8, 8)))


def step(
    around: str, *, calls: int = 1, on_device: bool = False, loaded: bool = False
) -> StepModel:
    """A step of 1 ms: 800 us of Python by that name, in so many calls, then small operators."""
    scene = Scene(end=1000)
    scene.on_host(0, 1000, HostKind.PYTHON, "train.py(1): <module>")
    if loaded:
        scene.on_host(0, 800, HostKind.DATA, "enumerate(DataLoader)#__next__")
    for call in range(calls):
        scene.on_host(call * 800 / calls, (call + 1) * 800 / calls, HostKind.PYTHON, around)
    for start in range(800, 1000, 20):
        scene.on_host(start, start + 19, call=SMALL)
        if on_device:
            launch = scene.on_host(start + 10, start + 15, HostKind.LAUNCH, "launch")
            scene.on_device(start + 16, start + 17, launch=launch)
    return step_model_of(scene.timeline())


def twice(step_model: StepModel) -> Estimate:
    """The time of this step with a batch twice as large."""
    wall = batches(step_model)[0].wall_ns
    return Estimate(
        low=wall.low / step_model.wall_ns,
        expected=wall.expected / step_model.wall_ns,
        high=wall.high / step_model.wall_ns,
    )


@pytest.mark.parametrize("on_device", [False, True])
def test_user_loop_grows_with_the_batch(on_device: bool) -> None:
    looping = step("train.py(5): augment", calls=60, on_device=on_device)
    found = twice(looping)
    assert found.low < 1.1
    assert found.expected >= 1.75
    assert found.high >= 1.75
    assert finding(looping, "batch-too-small") is None


@pytest.mark.parametrize("on_device", [False, True])
def test_unlooped_user_python_has_uncertain_growth(on_device: bool) -> None:
    memoised = step("train.py(5): prepare", on_device=on_device)
    assert twice(memoised).low < 1.1
    assert 1.3 < twice(memoised).expected < 1.6
    assert twice(memoised).high >= 1.75
    found = sure(memoised, "batch-too-small")
    assert "does not loop over samples" in found.assumes
    assert "less per sample" in found.change


@pytest.mark.parametrize(
    "around",
    ["nn.Module: Net_0", "torch/_tensor.py(570): backward", "env/torch/optim/adam.py(9): f"],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_python_of_model_and_torch_does_not_grow(around: str, on_device: bool) -> None:
    flat = step(around, on_device=on_device)
    assert twice(flat).expected < 1.25
    assert "does not loop over samples" not in sure(flat, "batch-too-small").assumes


@pytest.mark.parametrize("on_device", [False, True])
def test_loader_time_grows_with_the_batch(on_device: bool) -> None:
    """With any number of called functions: one may process all samples."""
    loading = step("data.py(5): __getitem__", calls=2, on_device=on_device, loaded=True)
    assert twice(loading).expected >= 1.75
    assert finding(loading, "batch-too-small") is None


def test_torch_data_preparation_grows_with_the_batch() -> None:
    assert twice(step("torch/utils/data/dataloader.py(9): collate", calls=60)).expected >= 1.75


def rollout(calls: int, *, trained: int) -> Timeline:
    """A model called many times; the last `trained` of the calls are differentiated."""
    scene = Scene(end=20 * calls + 20 * trained)
    operators = []
    for start in range(0, 20 * calls, 20):
        scene.on_host(start, start + 19, HostKind.PYTHON, "nn.Module: Policy_0")
        scene.on_host(start + 1, start + 18, HostKind.PYTHON, "nn.Module: Linear_0")
        operators.append(scene.on_host(start + 2, start + 17, call=SMALL))
    ends = 20 * (calls + trained)
    backward = [
        scene.on_host(start, start + 19, call=SMALL) for start in range(20 * calls, ends, 20)
    ]
    timeline = scene.timeline()
    forward = np.full(len(timeline.host), -1, np.int32)
    if trained:
        forward[backward] = operators[-trained:]
    return msgspec.structs.replace(
        timeline, host=msgspec.structs.replace(timeline.host, forward=forward)
    )


def test_one_call_per_sample_is_not_a_batch() -> None:
    step_model = step_model_of(rollout(65, trained=1))
    assert finding(step_model, "batch-too-small") is None
    assert batches(step_model) == []


@pytest.mark.parametrize("learns", [False, True])
def test_dependent_calls_are_not_a_batch(learns: bool) -> None:
    """As actions are, all before one backward; a loss that is read after each backward is none."""
    scene = Scene(end=20 * 64 + 20)
    operators, backward = [], []
    for start in range(0, 20 * 64, 20):
        scene.on_host(start, start + 10, HostKind.PYTHON, "nn.Module: Policy_0")
        operators.append(scene.on_host(start + 2, start + 9, call=SMALL))
        scene.on_host(start + 12, start + 13, name="aten::item")
        if learns:
            backward.append(scene.on_host(start + 14, start + 18, call=SMALL))
    backward = backward or [scene.on_host(20 * 64, 20 * 64 + 19, call=SMALL)]
    timeline = scene.timeline()
    forward, phase = np.full(len(timeline.host), -1, np.int32), timeline.host.phase.copy()
    forward[backward] = operators[-len(backward) :]
    phase[backward] = Phase.BACKWARD
    host = msgspec.structs.replace(timeline.host, forward=forward, phase=phase)
    step_model = step_model_of(msgspec.structs.replace(timeline, host=host))
    assert bool(batches(step_model)) is learns


@pytest.mark.parametrize(
    "timeline",
    [
        rollout(64, trained=64),  # steps of a sequence, or of accumulation
        rollout(64, trained=0),  # inference: a sampler's steps
        rollout(4, trained=1),
    ],
)
def test_few_or_trained_calls_do_not_hide_the_batch(timeline: Timeline) -> None:
    step_model = step_model_of(timeline)
    assert finding(step_model, "batch-too-small") is not None
    assert len(batches(step_model)) == 2


def test_sample_operators_are_called_per_sample() -> None:
    """Eight of the ten operators, as small as the others, are a loader's."""
    scene = Scene(end=200)
    scene.on_host(0, 160, HostKind.DATA, "enumerate(DataLoader)#__next__")
    for start in range(0, 200, 20):
        scene.on_host(start, start + 20, call=SMALL)
    # The other two may grow, or not.
    assert 1.79 < twice(step_model_of(scene.timeline())).expected < 2.0
