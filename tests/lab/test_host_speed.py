"""The host's speed during an experiment, and laws about host overhead judged at that speed."""

import msgspec
import pytest

from boundby.lab.conduct import conduct
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, exactly
from boundby.lab.host_speed import HostSpeedSampler
from boundby.model import HOST_COSTS, Machine, Overheads, Roof
from boundby.model.host_speed import addition_ns
from tests.lab.test_conduct import DOCUMENT, bench
from tests.machines import round_machine


def speed(*samples_ns: float) -> HostSpeedSampler:
    made = HostSpeedSampler()
    made.samples_ns = list(samples_ns)
    return made


def test_addition_time_does_not_depend_on_their_number() -> None:
    assert addition_ns(100) > 0 and addition_ns() > 0


def test_unchanged_host_speed_is_not_a_reason() -> None:
    # The round machine adds in 25 ns.
    assert speed(24, 25, 26, 25).words(round_machine()) is None
    # A hiccup that moves no median is none either.
    assert speed(25, 25, 25, 25, 25, 400).words(round_machine()) is None
    assert speed(25).words(round_machine()) is None


def test_a_slower_host_is_reported_with_both_figures() -> None:
    seen = speed(48, 50, 52, 50).relative_to(round_machine())
    assert seen is not None and seen.value == pytest.approx(2.0)
    assert speed(48, 50, 52, 50).words(round_machine()) == (
        "an addition in Python took 50 ns during the experiment (50 to 50), and 25 when the "
        "machine was saved"
    )


def test_varying_host_is_reported() -> None:
    seen = speed(25, 25, 25, 50, 50, 50).relative_to(round_machine())
    assert seen is not None
    assert seen.low == pytest.approx(1.0) and seen.high == pytest.approx(2.0)


def test_machine_without_host_speed_gives_no_reason() -> None:
    bare = msgspec.structs.replace(round_machine(), overheads=Overheads())
    assert speed(50, 50).relative_to(bare) is None


def test_slower_host_scales_host_costs_only() -> None:
    slower = round_machine().with_host_slowdown(2.0).overheads
    assert (slower.eager_op_ns, slower.launch_ns, slower.python_add_ns) == (16000, 8000, 50)
    assert slower.shortest_kernel_ns == 1000
    assert slower.compiled_call_ns is None
    named = set(Overheads.__struct_fields__) | {roof.name for roof in round_machine().roofs}
    assert set(HOST_COSTS) - {"host_link.h2d.pageable", "host_link.d2h.pageable"} <= named


def test_slower_host_scales_host_copies_only() -> None:
    links = ("host_link.h2d", "host_link.h2d.pageable")
    made = [Roof(name=name, value=8e9, unit="B/s", source="measured") for name in links]
    slower = msgspec.structs.replace(round_machine(), roofs=made).with_host_slowdown(2.0)
    assert [slower.rate(name) for name in links] == [8e9, 4e9]


def law(found_ns: float, *, rests_on: tuple[str, ...] = ("eager_op_ns",)) -> Experiment:
    def predict(machine: Machine, _: Probe) -> Predictions:
        dispatch_ns = machine.overheads.eager_op_ns or 0.0
        return {"step": around(100 * dispatch_ns, "the step", "ns", rests_on=rests_on)}

    return Experiment(
        name="law",
        document=DOCUMENT,
        predict=predict,
        measure=lambda *_: Measured(found={"step": exactly(found_ns)}, summary="so it is"),
    )


class Slow(HostSpeedSampler):
    """A host with a given speed."""

    def __init__(self, ns: float) -> None:
        super().__init__()
        self._ns = ns

    def sample(self) -> None:
        self.samples_ns.append(self._ns)


def test_law_about_host_overhead_is_judged_at_measured_speed() -> None:
    # 100 operators of 8 us are 800 us, and 1.6 ms on a host that takes twice as long.
    on = bench()
    on.host_speed = Slow(50.0)
    result = conduct(law(1.7e6), on)
    assert result.held
    assert result.predicted["step"].value == pytest.approx(8e5)
    assert result.why.startswith(
        "so it is; the step: predicted 800 us (1.60 ms at the measured host speed), measured "
        "1.70 ms; an addition in Python took 50 ns during the experiment"
    )


def test_unchanged_time_on_slower_host_is_a_miss() -> None:
    on = bench()
    on.host_speed = Slow(50.0)
    result = conduct(law(8e5), on)
    assert result.held is False
    assert "predicted 800 us (1.60 ms at the measured host speed), measured 800 us" in result.why


def test_law_without_host_costs_ignores_host_speed() -> None:
    on = bench()
    on.host_speed = Slow(50.0)
    result = conduct(law(1.6e6, rests_on=()), on)
    assert result.held is False
    assert "25 when the machine was saved" in result.why


def test_saved_host_speed_is_not_mentioned() -> None:
    on = bench()
    on.host_speed = Slow(25.0)
    result = conduct(law(8e5), on)
    assert result.held and result.why == "so it is"
    assert not any("Python" in note for note in result.notes)
