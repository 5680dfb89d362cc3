"""Predict, then measure, then judge: by the figures alone."""

from collections.abc import Callable

import pytest

from boundby.hardware.device import Cache, Device
from boundby.lab import conduct as conducting
from boundby.lab.asymptotes import crossing, flat, slope
from boundby.lab.bench import Bench
from boundby.lab.conduct import conduct
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, exactly
from boundby.lab.other_processes import OtherProcesses
from boundby.model import Machine
from boundby.model.lab import Interval
from tests.machines import round_machine

DOCUMENT = "A law.\n\nThe claim\n    It is so.\n"


def bench() -> Bench:
    caches = (Cache(name="memory.cache", capacity=2**20),)
    device = Device(
        name="x", kind="cpu", driver="1", torch="2", threads=1, memory_bytes=2**30, caches=caches
    )
    return Bench(machine=round_machine(), device=device)


def law_of(value: float, measure: Callable[[Bench, Probe], Measured]) -> Experiment:
    def predict(machine: Machine, _: Probe) -> Predictions:
        return {"figure": around(value, "the figure", "x")}

    return Experiment(name="law", document=DOCUMENT, predict=predict, measure=measure)


def found(value: float, **more: dict[str, str]) -> Callable[[Bench, Probe], Measured]:
    return lambda *_: Measured(found={"figure": exactly(value)}, **more)  # type: ignore[arg-type]


def test_law_holds_if_the_figure_is_in_its_range() -> None:
    result = conduct(law_of(2.0, found(2.4)), bench())
    assert (result.outcome, result.held) == ("held", True)
    assert result.measured["figure"].held
    assert result.claim == "It is so."


def test_law_fails_with_a_reason_if_the_figure_is_outside() -> None:
    miss = found(4.0, reasons={"figure": "the moon was full"})
    result = conduct(law_of(2.0, miss), bench())
    assert (result.outcome, result.held) == ("not held", False)
    assert result.why.startswith(
        "the figure: predicted 2.00x, measured 4.00x, because the moon was full"
    )


def test_intervals_decide_and_not_medians() -> None:
    wide = Interval(low=2.4, value=4.0, high=6.0)
    result = conduct(law_of(2.0, lambda *_: Measured(found={"figure": wide})), bench())
    assert result.held


def test_prediction_is_reported_before_measuring() -> None:
    order: list[str] = []

    def measure(*_: object) -> Measured:
        order.append("measured")
        return Measured(found={"figure": exactly(1.0)})

    conduct(law_of(1.0, measure), bench(), lambda law: order.append("predicted"))
    assert order == ["predicted", "measured"]


def test_unmeasured_figure_is_reported() -> None:
    result = conduct(law_of(1.0, lambda *_: Measured()), bench())
    assert (result.outcome, result.held) == ("not run", None)
    assert result.notes[-1] == "not measured: the figure"


def test_changed_machine_is_distinguished_from_a_wrong_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def predict(machine: Machine, _: Probe) -> Predictions:
        rate = machine.rate("memory.dram") or 0.0
        return {"rate": around(rate, "the rate", "B/s", rests_on=("memory.dram",))}

    def remeasured(
        bench: Bench, names: list[str]
    ) -> tuple[Machine, dict[str, tuple[float, float]]]:
        import msgspec

        slower = [
            msgspec.structs.replace(roof, value=roof.value / 2) for roof in bench.machine.roofs
        ]
        now = msgspec.structs.replace(bench.machine, roofs=slower)
        return now, {"memory.dram": (5e12, 2.5e12)}

    monkeypatch.setattr(conducting, "remeasure", remeasured)
    law = Experiment(
        name="law",
        document=DOCUMENT,
        predict=predict,
        measure=lambda *_: Measured(found={"rate": exactly(2.5e12)}),
    )
    result = conduct(law, bench())
    assert result.held is False
    assert "memory.dram 0.50 times the saved value" in result.why
    assert result.why.endswith("with the present roofs it holds")


def test_ridge_point_is_where_the_asymptotes_cross() -> None:
    sizes = [2**power for power in range(12)]
    times = [exactly(max(100.0, 2.0 * size)) for size in sizes]
    assert crossing(flat(times), slope(sizes, times)).value == pytest.approx(50)
    cubes = [exactly(max(1e6, 8.0 * size**3)) for size in sizes]
    found_at = crossing(flat(cubes), slope(sizes, cubes, power=3), power=3)
    assert found_at.value == pytest.approx(50)


def test_other_processes_exclude_this_one() -> None:
    import subprocess
    import sys

    seen = OtherProcesses()
    sum(index * index for index in range(300_000))
    own = [subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)]
    assert own
    words = seen.words()
    assert words is None or "other processes" in words
