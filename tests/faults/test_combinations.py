"""Several faults fixed together."""

from functools import partial

import pytest

from boundby.analysis.account import attribute_step
from boundby.faults.combinations import combined
from boundby.faults.fault import Detection, Fault
from boundby.step.build import build_step_model
from boundby.step.model import Edit, HostTime, StepModel
from boundby.step.prediction import saving_of
from boundby.step.simulator import with_host
from tests.faults.test_contract import step_model_of
from tests.step.test_replay import PRODUCT, scene_of


def shortening(fault: str, part: float) -> Fault:
    """Every kernel takes this part of its time."""

    def detect(step_model: StepModel) -> Detection:
        times = {index: part * work.ns for index, work in enumerate(step_model.op_records)}
        return certainly(Edit.set_time(times))

    return Fault(id=fault, title=fault, group="compute", document="", detect=detect)


def launching(step_model: StepModel) -> Detection:
    before_ns = step_model.launches.host_ns * 0.99
    return certainly(Edit.save_host(HostTime(before_ns=before_ns)))


def certainly(change: Edit) -> Detection:
    return Detection(
        low=change, expected=change, high=change, where=[], change="", assumes="nothing"
    )


def test_fix_that_saves_with_others_is_combined_before_small_savings() -> None:
    """Launches are free where kernels are long; once those are short, they are what is left."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=50).timeline()
    step_model = step_model_of(timeline)
    little = [shortening(f"little-{part}", part) for part in (0.99, 0.985, 0.98, 0.975, 0.97)]
    launches = Fault(
        id="launches", title="Launches", group="overhead", document="", detect=launching
    )
    rows = combined([step_model], [*little, shortening("much", 0.2), launches])
    alone = {row.faults[0]: row.wall_ns.expected for row in rows if len(row.faults) == 1}
    assert set(alone) == {"little-0.975", "little-0.97", "much", "launches"}
    assert alone["launches"] > alone["little-0.975"]


def test_saving_is_as_uncertain_as_the_host_time() -> None:
    """With launches out of the way the device sets the time: what is saved is the host's."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=400).timeline()
    likeliest = step_model_of(timeline)
    wall = likeliest.wall_ns
    attribution = attribute_step(timeline, likeliest.machine, wall_ns=wall)
    fast, slow = (
        build_step_model(
            timeline,
            likeliest.machine,
            attribution,
            wall_ns=wall,
            phases={},
            host=partial(with_host, factor=factor),
        )
        for factor in (0.8, 1.2)
    )
    launches = Fault(
        id="launches", title="Launches", group="overhead", document="", detect=launching
    )
    none, row = combined([likeliest, fast, slow], [launches])
    assert none.saving_ns is None and row.saving_ns is not None
    assert row.wall_ns.high < 1.01 * row.wall_ns.low
    saving = row.saving_ns
    assert saving.expected == pytest.approx(wall - row.wall_ns.expected)
    assert saving.low == pytest.approx(0.8 * wall - row.wall_ns.expected, rel=0.03)
    assert saving.high == pytest.approx(1.2 * wall - row.wall_ns.expected, rel=0.03)


def test_host_may_be_slower_for_the_fixed_step() -> None:
    saving = saving_of([100.0, 120.0], [40.0, 60.0], 0)
    assert (saving.low, saving.expected, saving.high) == (40.0, 60.0, 60.0)
    # In a trace the step itself is a guess in each picture.
    guessed = saving_of([100.0, 120.0], [40.0, 60.0], 0, known=False)
    assert (guessed.low, guessed.expected, guessed.high) == (60.0, 60.0, 60.0)
