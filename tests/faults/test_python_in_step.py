"""The script's own Python in the step: where it is, and what the step would take without it."""

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.model import HostKind, OpCall
from boundby.step.build import build_step_model
from boundby.step.compiled_host import compiled_host_ns
from boundby.step.model import Edit, StepModel
from boundby.step.user_python import host_time_outside_model, user_python
from tests.faults.step_models import finding, sure
from tests.machines import round_machine
from tests.timelines import Scene, tensor

NAME = "python-in-step"
SMALL = OpCall(name="aten::mm", args=(tensor(8, 8), tensor(8, 8)))
MACHINE = round_machine()
COUNT, STATISTICS, MODEL = range(3)
LINES = ["train.py:12", "train.py:40", "train.py:30"]


def step(
    function: str = "train.py(10): statistics",
    *,
    us: float = 800,
    on_device: bool = False,
    behind: bool = False,
    loaded: bool = False,
    trained: bool = False,
) -> StepModel:
    """Ten small operators in 200 us, at one line; before them a function, called at another.

    `trained`: all of it at one line, as where a trainer takes the steps. `behind`: the device has
    enough to do with what was asked for before.
    """
    scene = Scene(end=us + 200)
    sources = [STATISTICS]
    if behind:
        scene.on_device(0, us + 16)
    scene.on_host(0, us + 200, HostKind.PYTHON, "train.py(1): <module>")
    if loaded:
        scene.on_host(0, us, HostKind.DATA, "enumerate(DataLoader)#__next__")
        sources.append(STATISTICS)
    scene.on_host(0, us, HostKind.PYTHON, function)
    sources.append(COUNT)
    for at in range(10):
        start = us + 20 * at
        scene.on_host(start, start + 19, call=SMALL)
        sources.append(MODEL)
        if on_device:
            launch = scene.on_host(start + 10, start + 15, HostKind.LAUNCH, "launch")
            sources.append(MODEL)
            scene.on_device(start + 16, start + (36 if behind else 17), launch=launch)
    timeline = scene.timeline()
    if trained:
        sources = [MODEL] * len(sources)
    host = msgspec.structs.replace(timeline.host, source=np.array(sources, np.int32))
    timeline = msgspec.structs.replace(timeline, host=host, sources=LINES)
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, MACHINE, wall_ns=wall)
    return build_step_model(timeline, MACHINE, attribution, wall_ns=wall, phases={})


@pytest.mark.parametrize("on_device", [False, True])
def test_saving_is_user_python_time(on_device: bool) -> None:
    found = sure(step(on_device=on_device), NAME)
    assert found.where[0] == LINES[COUNT]
    assert found.saving_ns.expected == pytest.approx(800e3, rel=0.02)
    assert found.saving_ns.low == pytest.approx(400e3, rel=0.02)
    assert "800 us" in found.assumes


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        "nn.Module: Net_0",
        "torch/_tensor.py(570): backward",
        "env/torch/optim/adam.py(9): f",
        "<built-in function collect>",
    ],
)
def test_model_torch_and_garbage_collection_are_not_user_python(
    function: str, on_device: bool
) -> None:
    assert finding(step(function, on_device=on_device), NAME) is None


def test_longer_clean_step_has_no_more_user_python() -> None:
    profiled = step()
    wall = 3 * profiled.wall_ns
    attribution = attribute_step(profiled.timeline, MACHINE, wall_ns=wall)
    longer = build_step_model(profiled.timeline, MACHINE, attribution, wall_ns=wall, phases={})
    assert sure(longer, NAME).saving_ns.expected == pytest.approx(1.25 * 800e3, rel=0.02)


@pytest.mark.parametrize("on_device", [False, True])
def test_making_batches_is_waiting_for_data(on_device: bool) -> None:
    step_model = step("data.py(5): __getitem__", loaded=True, on_device=on_device)
    assert finding(step_model, NAME) is None


def test_short_python_between_operators_is_not_reported() -> None:
    assert finding(step(us=15), NAME) is None


def test_busy_device_hides_user_python() -> None:
    step_model = step(on_device=True, behind=True)
    found = finding(step_model, NAME)
    assert found is None or found.saving_ns.expected < 0.05 * step_model.wall_ns


def test_cuda_graph_keeps_user_python() -> None:
    """Of 1,000 us the model's host has 200, and a tenth of those is left."""
    found = sure(step(on_device=True), "eager-launches")
    assert found.saving_ns.high < 200e3
    assert found.saving_ns.expected == pytest.approx(180e3, rel=0.15)


def test_compiled_launches_keep_user_python() -> None:
    step_model = step(on_device=True)
    stays = compiled_host_ns(step_model, [], launch_ns=1000.0)
    assert stays[0] >= 800e3
    assert (stays >= 0).all()


def test_saving_with_graph_is_not_counted_twice() -> None:
    step_model = step(on_device=True)
    without = step_model.apply(Edit(no_user_python=True))
    assert user_python(without).likely.ns == 0
    assert host_time_outside_model(without).ns == 0


@pytest.mark.parametrize("on_device", [False, True])
def test_library_loop_around_the_model_is_not_user_python(on_device: bool) -> None:
    """Operators take 190 us at the same line, and the library 170 beside them."""
    step_model = step("trainer.py(7): log", us=170, on_device=on_device, trained=True)
    assert finding(step_model, NAME) is None
    if on_device:
        assert host_time_outside_model(step_model).ns == pytest.approx(170e3, rel=0.05), (
            "though no graph takes it away"
        )
        without = step_model.apply(Edit(no_user_python=True))
        assert host_time_outside_model(without).ns == host_time_outside_model(step_model).ns, (
            "nor does an idle script"
        )
