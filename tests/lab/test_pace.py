"""The host's pace: what is seen of it, and laws about asking judged by it."""

import msgspec
import pytest

from boundby.lab.conduct import conduct
from boundby.lab.experiment import Experiment, Observation, Predictions, Probe, around, exactly
from boundby.lab.pace import Pace
from boundby.model import HOST_COSTS, Machine, Overheads, Roof
from boundby.model.host_speed import addition_ns
from tests.lab.test_conduct import DOCUMENT, bench
from tests.machines import round_machine


def pace(*samples_ns: float) -> Pace:
    made = Pace()
    made.samples_ns = list(samples_ns)
    return made


def test_an_addition_takes_as_long_in_few_as_in_many() -> None:
    assert addition_ns(100) > 0 and addition_ns() > 0


def test_a_host_as_it_was_saved_is_no_reason() -> None:
    # The round machine adds in 25 ns.
    assert pace(24, 25, 26, 25).words(round_machine()) is None
    # A hiccup that moves no median is none either.
    assert pace(25, 25, 25, 25, 25, 400).words(round_machine()) is None
    assert pace(25).words(round_machine()) is None


def test_a_slower_host_is_reported_with_both_figures() -> None:
    seen = pace(48, 50, 52, 50).beside(round_machine())
    assert seen is not None and seen.value == pytest.approx(2.0)
    assert pace(48, 50, 52, 50).words(round_machine()) == (
        "an addition in Python took the host 50 ns meanwhile (50 to 50), 25 when the machine was "
        "saved"
    )


def test_a_host_that_varies_is_reported_too() -> None:
    seen = pace(25, 25, 25, 50, 50, 50).beside(round_machine())
    assert seen is not None
    assert seen.low == pytest.approx(1.0) and seen.high == pytest.approx(2.0)


def test_a_machine_saved_without_it_says_nothing() -> None:
    bare = msgspec.structs.replace(round_machine(), overheads=Overheads())
    assert pace(50, 50).beside(bare) is None


def test_the_hosts_own_costs_grow_and_the_devices_do_not() -> None:
    slower = round_machine().with_host_slowdown(2.0).overheads
    assert (slower.eager_op_ns, slower.launch_ns, slower.python_add_ns) == (16000, 8000, 50)
    assert slower.shortest_kernel_ns == 1000
    assert slower.compiled_call_ns is None
    named = set(Overheads.__struct_fields__) | {roof.name for roof in round_machine().roofs}
    assert set(HOST_COSTS) - {"host_link.h2d.pageable", "host_link.d2h.pageable"} <= named


def test_copies_that_the_host_makes_slow_down_with_it_and_others_do_not() -> None:
    links = ("host_link.h2d", "host_link.h2d.pageable")
    made = [Roof(name=name, value=8e9, unit="B/s", source="measured") for name in links]
    slower = msgspec.structs.replace(round_machine(), roofs=made).with_host_slowdown(2.0)
    assert [slower.rate(name) for name in links] == [8e9, 4e9]


def law(found_ns: float, *, rests_on: tuple[str, ...] = ("eager_op_ns",)) -> Experiment:
    def predict(machine: Machine, _: Probe) -> Predictions:
        asking = machine.overheads.eager_op_ns or 0.0
        return {"step": around(100 * asking, "the step", "ns", rests_on=rests_on)}

    return Experiment(
        name="law",
        document=DOCUMENT,
        predict=predict,
        measure=lambda *_: Observation(found={"step": exactly(found_ns)}, summary="so it is"),
    )


class Slow(Pace):
    """A host at a given pace."""

    def __init__(self, ns: float) -> None:
        super().__init__()
        self._ns = ns

    def look(self) -> None:
        self.samples_ns.append(self._ns)


def test_a_law_about_asking_is_judged_at_the_pace_that_was_seen() -> None:
    # 100 operators of 8 us are 800 us, and 1.6 ms on a host that takes twice as long.
    on = bench()
    on.pace = Slow(50.0)
    result = conduct(law(1.7e6), on)
    assert result.held
    assert result.predicted["step"].value == pytest.approx(8e5)
    assert result.why.startswith(
        "so it is; the step: predicted 800 us (1.60 ms at the host's pace), found 1.70 ms; "
        "an addition in Python took the host 50 ns meanwhile"
    )


def test_what_was_as_predicted_is_not_so_on_a_slower_host() -> None:
    on = bench()
    on.pace = Slow(50.0)
    result = conduct(law(8e5), on)
    assert result.held is False
    assert "predicted 800 us (1.60 ms at the host's pace), found 800 us" in result.why


def test_a_law_that_does_not_rest_on_the_host_is_not_helped() -> None:
    on = bench()
    on.pace = Slow(50.0)
    result = conduct(law(1.6e6, rests_on=()), on)
    assert result.held is False
    assert "25 when the machine was saved" in result.why


def test_at_the_saved_pace_nothing_is_said() -> None:
    on = bench()
    on.pace = Slow(25.0)
    result = conduct(law(8e5), on)
    assert result.held and result.why == "so it is"
    assert not any("Python" in note for note in result.notes)
