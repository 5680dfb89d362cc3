"""What each law predicts from a machine with round figures, with the arithmetic beside it."""

import msgspec
import pytest

from boundby.lab import (
    EXPERIMENTS,
    ahead,
    batch,
    compilers,
    fusion,
    intensity,
    matmul,
    python,
    transfer,
)
from boundby.lab.experiment import HEADINGS, Experiment, Probe, exactly
from boundby.model import Machine, Overheads
from boundby.model.errors import BoundbyError
from tests.machines import roof, round_machine


def machine() -> Machine:
    """The round machine with a copy rate, a link and the cost of compiled code."""
    plain = round_machine()
    return msgspec.structs.replace(
        plain,
        roofs=[
            *plain.roofs,
            roof("memory.dram.copy", 4e12, "B/s"),
            roof("memory.dram.add", 4e12, "B/s"),
            roof("host_link.h2d", 5e10, "B/s"),
            roof("host_link.h2d.pageable", 1e10, "B/s"),
        ],
        overheads=Overheads(
            eager_op_ns=8000,
            launch_ns=4000,
            shortest_kernel_ns=1000,
            python_add_ns=25,
            compiled_call_ns=20_000,
        ),
    )


def test_one_pass_moves_eight_bytes_per_element() -> None:
    # 8 bytes / 4e12 B/s = 0.002 ns
    assert fusion.predict(machine(), Probe())["one"].value == pytest.approx(0.002)


def test_balance_counts_a_multiply_add_as_two_flops() -> None:
    # memory: 8 / 4e12 s; n multiply-adds: 2n / 5e13 s; equal at n = 8 * 5e13 / (2 * 4e12) = 50
    law = intensity.predict(machine(), Probe())["crossover"]
    assert law.value == pytest.approx(50)
    assert law.low == pytest.approx(40)
    assert law.high == pytest.approx(62.5)


def test_the_critical_batch_is_flops_over_bandwidth() -> None:
    # weights: 2DF bytes / 5e12; B rows: 2BDF / 1e15; equal at B = 1e15 / 5e12 = 200
    assert batch.predict(machine(), Probe())["critical"].value == pytest.approx(200)


def test_float32_weights_are_twice_the_bytes() -> None:
    on_cpu = msgspec.structs.replace(machine(), kind="cpu")
    # 4DF / 5e12 = 2BDF / 5e13 at B = 20
    assert batch.predict(on_cpu, Probe())["critical"].value == pytest.approx(20)


def test_matmuls_below_a_size_are_overhead_bound() -> None:
    # 1.7 * 8 us * 1e15 FLOP/s / 2 = 6.8e9 = 1894.5^3
    law = matmul.predict(machine(), Probe())["side.bfloat16"]
    assert law.value == pytest.approx(1894.5, rel=1e-3)
    assert law.low < law.value < law.high


def test_operator_is_large_if_it_outlasts_its_launch() -> None:
    # 8 us * 4e12 B/s / 12 bytes = 2.67e6 elements
    assert ahead.predict(machine(), Probe())["crossover"].value == pytest.approx(8e-6 * 4e12 / 12)


def test_python_opportunity_cost_is_at_the_fastest_roof() -> None:
    # 25 ns * 1e15 FLOP/s
    assert python.predict(machine(), Probe())["missed"].value == pytest.approx(25e6)


def test_links_are_predicted_if_the_machine_has_them() -> None:
    law = transfer.predict(machine(), Probe())
    assert law["pinned"].value == 5e10
    on_cpu = msgspec.structs.replace(round_machine(), kind="cpu")
    assert "pinned" not in transfer.predict(on_cpu, Probe())


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_every_experiment_documents_itself(experiment: Experiment) -> None:
    assert experiment.title
    for heading in HEADINGS:
        assert len(experiment.section(heading)) > 40
    assert experiment.claim == experiment.section("The claim")


PURE = [each for each in EXPERIMENTS if each.probe is None]


@pytest.mark.parametrize("experiment", PURE, ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_predictions_are_intervals_around_a_figure(experiment: Experiment, kind: str) -> None:
    law = experiment.predict(msgspec.structs.replace(machine(), kind=kind), Probe())
    assert law
    for prediction in law.values():
        assert prediction.low <= prediction.value <= prediction.high
        assert prediction.what


def test_missing_roof_is_a_one_line_error() -> None:
    bare = msgspec.structs.replace(round_machine(), roofs=[])
    with pytest.raises(BoundbyError, match=r"no memory\.dram: boundby machine --remeasure"):
        fusion.predict(bare, Probe())


def counted(**counts: float) -> Probe:
    every = dict.fromkeys(
        ("operators", "views", "nodes", "calls", "kernels", "tensors", "compiled_calls"), 0.0
    )
    return Probe(figures={name: exactly(value) for name, value in (every | counts).items()})


def test_eager_step_is_bound_by_dispatch() -> None:
    asked = counted(operators=80, views=50, nodes=30, calls=800, kernels=17)
    # 80 * 8 us + 50 * (8 - 4) us + 800 * 5 * 25 ns; without a figure for it a node is an operator
    law = compilers.predict(machine(), asked)["eager"]
    assert law.value == pytest.approx(1.5 * (640e3 + 200e3 + 30 * 8e3 + 100e3))
    trained = msgspec.structs.replace(machine().overheads, trained_op_ns=13_000)
    with_nodes = msgspec.structs.replace(machine(), overheads=trained)
    # A node is what an operator with autograd takes more: 30 * (13 - 8) us.
    law = compilers.predict(with_nodes, asked)["eager"]
    assert law.value == pytest.approx(1.5 * (640e3 + 200e3 + 150e3 + 100e3))
    assert law.low == pytest.approx(law.value / 1.5 / 1.25)


def test_compiled_step_is_entry_tensors_and_kernels() -> None:
    asked = counted(operators=80, kernels=17 + 10, tensors=38, compiled_calls=200)
    # 20 us + 38 * 4 us + 10 kernels and 17 products, 8 us each, + 200 * 5 * 25 ns
    law = compilers.predict(machine(), asked)["compiled"]
    assert law.value == pytest.approx(1.5 * (20e3 + 152e3 + 27 * 8e3 + 25e3))


def test_cpu_matmul_is_synchronous() -> None:
    asked = counted(operators=80, kernels=17)
    alone = compilers.predict(machine(), asked)["eager"].value
    on_cpu = msgspec.structs.replace(machine(), kind="cpu")
    # 17 products of 2 * 32 * 64 * 64 FLOPs at 5e13 FLOP/s
    more = compilers.predict(on_cpu, asked)["eager"].value - alone
    assert more == pytest.approx(1.5 * 17 * 2 * 32 * 64**2 / 5e13 * 1e9)
