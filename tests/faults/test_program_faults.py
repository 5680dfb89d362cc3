"""Mistakes in programs, on steps made by hand: seen where the evidence is, not seen without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.faults import Detection, cudnn_benchmark, recompilation
from boundby.model import Allocations, HostKind, OpCall, Phase, Tensor, Timeline
from boundby.model.evidence import (
    Growth,
    KeptGraph,
    ModuleCall,
    Padding,
    ProgramSettings,
    RebuiltTensor,
    RepeatedBackward,
    RepeatedCall,
    SingleSamples,
    StepEvidence,
    UnclearedSteps,
    UnusedGradients,
    UnusedGraph,
)
from boundby.model.host_counters import CompiledAgain, HostCounters
from boundby.model.observation import Observation
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from tests.faults.step_models import finding, sure
from tests.machines import round_machine
from tests.timelines import Scene, tensor

LINES = ["train.py:1", "train.py:2", "train.py:3"]
CALL = ModuleCall(module="Net", occurrence=1, where=["train.py:2"])
FIRST = ModuleCall(module="Net", occurrence=0, where=["train.py:2"])
BIG = OpCall(name="aten::relu", args=(tensor(1_000_000),))


def step_of(
    timeline: Timeline,
    lines: list[int],
    evidence: StepEvidence | None = None,
    phases: list[Phase] | None = None,
    host: HostCounters | None = None,
    **columns: Any,
) -> StepModel:
    """A CPU step whose host rows are at these lines, numbered from 0."""
    places = {"source": np.array(lines, np.int32), "called": np.array(lines, np.int32)}
    changed = msgspec.structs.replace(
        timeline.host,
        phase=np.array(phases or [Phase.FORWARD] * len(lines), np.int8),
        **(places | columns),
    )
    timeline = msgspec.structs.replace(timeline, host=changed, sources=LINES)
    machine, wall = round_machine(), float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    return build_step_model(
        timeline,
        machine,
        attribution,
        wall_ns=wall,
        phases={},
        host_counters=host,
        observation=Observation(
            source="torch", framework="torch", evidence=evidence or StepEvidence()
        ),
    )


def two_calls(evidence: StepEvidence | None = None) -> StepModel:
    """A module called twice at one line, 100 us each, and 50 us of something else."""
    scene = Scene(end=250)
    for start in (0, 100):
        scene.on_host(start, start + 100, HostKind.PYTHON, f"nn.Module: Net_{start}")
        scene.on_host(start, start + 100, call=BIG)
    scene.on_host(200, 250, call=BIG)
    return step_of(scene.timeline(), [1, 1, 1, 1, 0], evidence)


def test_repeated_forward_costs_one_call() -> None:
    evidence = StepEvidence(repeated=[RepeatedCall(call=CALL, first=FIRST, same=True)])
    found = sure(two_calls(evidence), "repeated-forward")
    assert found.saving_ns.expected == pytest.approx(100e3, rel=0.05)
    assert found.where == ["train.py:2"]
    assert finding(two_calls(), "repeated-forward") is None


def test_unused_graph_costs_its_memory() -> None:
    evidence = StepEvidence(unused_graphs=[UnusedGraph(call=CALL)])
    host = HostCounters(steps_ns=(250e3,), step_pages=(100,), fresh_page_ns=500.0)
    step = two_calls(evidence)
    step.host_counters = host
    found = sure(step, "no-grad-missing")
    # 40% of the step's work is in the call: so much of 50 us.
    assert found.saving_ns.expected == pytest.approx(20e3, rel=0.2)
    assert "inference_mode" in found.change


def chain_of_results(count: int, recorded: StepEvidence) -> StepModel:
    """A module that makes so many results of 2 MB, 20 us each, one of the other."""
    scene = Scene(end=20 * count)
    scene.on_host(0, 20 * count, HostKind.PYTHON, "nn.Module: Net_0")
    small = OpCall(name="aten::relu", args=(tensor(500_000),))
    for at in range(count):
        scene.on_host(20 * at, 20 * at + 20, call=small)
    return step_of(scene.timeline(), [1] * (count + 1), recorded)


def test_results_held_by_a_graph_miss_the_cache() -> None:
    evidence = StepEvidence(unused_graphs=[UnusedGraph(call=FIRST)])
    few = sure(chain_of_results(2, evidence), "no-grad-missing")
    many = sure(chain_of_results(60, evidence), "no-grad-missing")
    # 4 MB at 5 TB/s instead of at 10, for each of 60; two of them stay in the cache.
    assert many.saving_ns.expected == pytest.approx(60 * 4e6 / 1e13 * 1e9, rel=0.05)
    assert few.saving_ns.expected == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("training", [False, True])
def test_layer_with_an_inference_operator_makes_no_copies(training: bool) -> None:
    scene = Scene(end=300)
    scene.on_host(0, 300, HostKind.PYTHON, "nn.Module: Net_0")
    scene.on_host(0, 300, HostKind.PYTHON, "nn.Module: TransformerEncoderLayer_0")
    scene.on_host(0, 100, call=OpCall(name="aten::copy_", args=(tensor(9_000), tensor(9_000))))
    scene.on_host(100, 300, call=BIG)
    evidence = StepEvidence(unused_graphs=[UnusedGraph(call=FIRST, training=training)])
    found = finding(step_of(scene.timeline(), [1, 1, 1, 1], evidence), "no-grad-missing")
    expected = found.saving_ns.expected if found else 0.0
    # The copy, and of the dispatch of two operators, 8 us each, 30%.
    assert expected == pytest.approx(0.0 if training else 104.8e3, abs=1e3)


def backward(evidence: StepEvidence) -> StepModel:
    """Two forward operators of 20 us, and their backwards of 40 us, nodes 7 and 8."""
    scene = Scene(end=120)
    for start, end in ((0, 20), (20, 40), (40, 80), (80, 120)):
        scene.on_host(start, end, call=BIG)
    return step_of(
        scene.timeline(),
        [0, 1, 1, 0],
        evidence,
        phases=[Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD],
        sequence=np.array([7, 8, 8, 7], np.int64),
        forward=np.array([-1, -1, 1, 0], np.int32),
    )


def test_unused_gradients_cost_their_share_of_backward() -> None:
    unused = UnusedGradients(
        where=["train.py:3"], nodes=[0], edges=[1], total=2, parameters=2, unowned=False
    )
    found = sure(backward(StepEvidence(unused_gradients=[unused])), "unused-gradients")
    assert found.saving_ns.expected == pytest.approx(40e3, rel=0.05)
    # Where it begins, where to detach, and the backward.
    assert found.where == ["train.py:1", "train.py:2", "train.py:3"]
    other = msgspec.structs.replace(unused, total=9)
    assert finding(backward(StepEvidence(unused_gradients=[other])), "unused-gradients") is None


def test_repeated_backward_costs_its_second_pass() -> None:
    scene = Scene(end=140)
    for start, end in ((0, 20), (20, 60), (60, 100), (100, 140)):
        scene.on_host(start, end, call=BIG)
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    again = RepeatedBackward(where=["train.py:4"], first=["train.py:3"], nodes=[0], total=1)

    def step(*repeated: RepeatedBackward) -> StepModel:
        return step_of(
            scene.timeline(),
            [0, 1, 1, 2],
            StepEvidence(repeated_backwards=list(repeated)),
            phases=phases,
            sequence=np.array([7, 7, 7, -1], np.int64),
            forward=np.array([-1, 0, 0, -1], np.int32),
        )

    found = sure(step(again), "repeated-backward")
    assert found.where == ["train.py:4", "train.py:3"]
    assert found.saving_ns.expected == pytest.approx(40e3, rel=0.05)
    assert finding(step(), "repeated-backward") is None


def test_single_samples_pay_host_time_per_sample() -> None:
    single = SingleSamples(where=["serve.py:7"], samples=16)

    def step(evidence: StepEvidence) -> StepModel:
        scene = Scene(end=100)
        scene.on_host(0, 20, call=BIG)
        return step_of(scene.timeline(), [0], evidence)

    found = sure(step(StepEvidence(single_samples=single)), "single-samples")
    assert found.where == ["serve.py:7"]
    assert found.saving_ns.high > 0
    trained = StepEvidence(single_samples=single, has_backward=True)
    assert finding(step(trained), "single-samples") is None


def test_a_recorded_backward_costs_its_nodes() -> None:
    evidence = StepEvidence(kept_graphs=[KeptGraph(where=["train.py:3"], create=True)])
    found = sure(backward(evidence), "retained-graph")
    assert found.where == ["train.py:3"] and found.change.endswith("create_graph")
    assert finding(backward(StepEvidence()), "retained-graph") is None


@pytest.mark.parametrize(("kept", "pages"), [(0, 50), (100, 100)])
def test_retained_graph_costs_all_its_pages(kept: int, pages: int) -> None:
    step = backward(StepEvidence(kept_graphs=[KeptGraph(where=["train.py:3"], create=False)]))
    step.host_counters = HostCounters(
        steps_ns=(120e3,),
        step_pages=(100,),
        fresh_pages=100,
        kept_pages=kept,
        system_ns=30e3,
        fresh_page_ns=200.0,
    )
    # 300 ns each by what the system did, and not 200 as when one is tried alone.
    found = sure(step, "retained-graph")
    assert found.saving_ns.expected == pytest.approx(pages * 300.0, rel=0.01)


def test_copied_gradients_of_recorded_backward_are_saved() -> None:
    copy = OpCall(name="aten::copy_", args=(tensor(1_000_000), tensor(1_000_000)))
    scene = Scene(end=200)
    scene.on_host(0, 50, call=copy)
    scene.on_host(50, 200, HostKind.OP, "torch::autograd::AccumulateGrad")
    scene.on_host(50, 200, call=copy)
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD]

    def saved(create: bool) -> float:
        kept = KeptGraph(where=["train.py:3"], create=create)
        step = step_of(scene.timeline(), [0, 1, 1], StepEvidence(kept_graphs=[kept]), phases)
        found = finding(step, "retained-graph")
        return found.saving_ns.expected if found else 0.0

    assert saved(create=True) > 140e3 > saved(create=False)


def test_rebuilt_tensor_costs_its_line_time() -> None:
    rebuilt = RebuiltTensor(where="train.py:1", names=["mask"], bytes=4e6, times=1)
    found = sure(two_calls(StepEvidence(rebuilt=[rebuilt])), "rebuilt-tensors")
    assert found.saving_ns.expected == pytest.approx(50e3, rel=0.05)
    assert "mask" in found.change


def test_padding_saves_its_share_of_token_operators() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(4, 64, 32),)))
    scene.on_host(100, 200, call=OpCall(name="aten::relu", args=(tensor(4, 32),)))
    padding = Padding(where=["train.py:1"], width=64, lengths=[16, 16, 8, 8])
    found = sure(step_of(scene.timeline(), [0, 1], StepEvidence(padding=padding)), "padding")
    assert found.saving_ns.expected == pytest.approx(75e3, rel=0.1)
    assert "81% of the tokens are padding" in found.change and found.kind == "mistake"


def test_padding_to_the_longest_row_of_a_batch_is_tuning() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(4, 64, 32),)))
    padding = Padding(where=["train.py:1"], width=64, lengths=[63, 32, 32, 32])
    found = sure(step_of(scene.timeline(), [0], StepEvidence(padding=padding)), "padding")
    assert found.kind == "tuning"


def test_kept_graphs_are_reported_at_the_line_that_keeps_them() -> None:
    growth = Growth(where=["train.py:1"], nodes_per_step=4)
    found = sure(two_calls(StepEvidence(growth=growth)), "growing-memory")
    assert found.saving_ns.expected == pytest.approx(25e3, rel=0.1)


def test_one_step_between_gradient_clearings_remains() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    evidence = StepEvidence(uncleared=UnclearedSteps(where=["train.py:2"], steps_per_clear=4))
    step = step_of(scene.timeline(), [0, 1], evidence, phases=[Phase.FORWARD, Phase.OPTIMIZER])
    found = sure(step, "optimizer-too-often")
    assert found.saving_ns.expected == pytest.approx(75e3, rel=0.05)


def test_costly_settings_are_reported_at_their_line() -> None:
    settings = ProgramSettings(
        anomaly_lines=["train.py:1"], anomaly_set_at=["train.py:3"], fills_memory=True
    )
    scene = Scene(end=200)
    scene.on_host(0, 100, call=BIG)
    scene.on_host(100, 140, HostKind.OP, "aten::isnan")
    scene.on_host(140, 200, HostKind.OP, "aten::empty")
    scene.on_host(140, 190, HostKind.OP, "aten::fill_")
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD, Phase.FORWARD]

    def step(evidence: StepEvidence) -> StepModel:
        return step_of(scene.timeline(), [0, 0, 1, 1], evidence, phases)

    anomaly = sure(step(StepEvidence(settings=settings)), "anomaly-detection")
    assert anomaly.where == ["train.py:1", "train.py:3"]
    assert anomaly.saving_ns.expected > 30e3
    filled = sure(step(StepEvidence(settings=settings)), "deterministic-algorithms")
    assert filled.where == ["train.py:2"] and filled.saving_ns.expected > 40e3
    assert finding(step(StepEvidence()), "anomaly-detection") is None
    assert finding(step(StepEvidence()), "deterministic-algorithms") is None


def test_anomaly_detection_that_costs_nothing_is_reported() -> None:
    settings = ProgramSettings(anomaly_lines=["train.py:1"], anomaly_set_at=["train.py:1"])
    found = sure(two_calls(StepEvidence(settings=settings)), "anomaly-detection")
    assert found.saving_ns.expected == 0 and found.where == ["train.py:1"]


def test_threads_beyond_cores_are_reported() -> None:
    many = StepEvidence(settings=ProgramSettings(threads=16, cores=2, set_at=["train.py:3"]))
    assert sure(two_calls(many), "too-many-threads").where == ["train.py:3"]
    few = StepEvidence(settings=ProgramSettings(threads=2, cores=2))
    assert finding(two_calls(few), "too-many-threads") is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_double_precision_takes_twice_the_bytes(dtype: str) -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(1_000_000, dtype=dtype),)))
    found = finding(step_of(scene.timeline(), [0]), "float64")
    if dtype == "float32":
        assert found is None
    else:
        assert found is not None and found.where[0] == "train.py:1"
        assert found.saving_ns.expected == pytest.approx(50e3, rel=0.1)


def test_float64_is_reported_where_it_enters() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 100, call=OpCall(name="aten::relu", args=(tensor(1000, dtype="float64"),)))
    evidence = StepEvidence(settings=ProgramSettings(doubles_made_at=["train.py:3"]))
    step = step_of(scene.timeline(), [0], evidence=evidence)
    assert sure(step, "float64").where == ["train.py:3", "train.py:1"]


@pytest.mark.parametrize(
    "function",
    [
        "torch/serialization.py(900): save",
        "<built-in function fsync>",
        "<built-in method writerow of _csv.writer object at 0x7f>",
        "numpy/lib/_npyio_impl.py(675): savez_compressed",
    ],
)
def test_file_writes_are_recognised_by_their_functions(function: str) -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, function)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 0]), "files-in-step")
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected > 80e3


def test_copies_of_weights_in_the_step_are_found() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "copy.py(128): deepcopy")
    scene.on_host(20, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 2, 0]), "copied-state")
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected == pytest.approx(99e3, rel=0.05)


def test_writing_an_archive_is_not_data_preparation() -> None:
    def archive(around: str) -> StepModel:
        scene = Scene(end=200)
        scene.on_host(0, 100, HostKind.PYTHON, around)
        scene.on_host(10, 90, HostKind.PYTHON, "zipfile.py(1700): open")
        scene.on_host(100, 200, call=BIG)
        return step_of(scene.timeline(), [2, 2, 0])

    written = archive("numpy/lib/npyio.py(675): savez_compressed")
    assert sure(written, "files-in-step") and finding(written, "main-process-data") is None
    assert sure(archive("lib/data.py(3): load"), "main-process-data")


def test_reading_a_file_is_not_writing() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "<built-in method read of _io.TextIOWrapper object>")
    scene.on_host(100, 200, call=BIG)
    assert finding(step_of(scene.timeline(), [2, 0]), "files-in-step") is None


def test_file_opening_counts_at_the_writing_line() -> None:
    def opened(then: str) -> StepModel:
        scene = Scene(end=300)
        scene.on_host(0, 300, HostKind.PYTHON, "train.py(1): <module>")
        scene.on_host(0, 100, HostKind.PYTHON, "<built-in function open>")
        scene.on_host(100, 150, HostKind.PYTHON, then)
        scene.on_host(200, 300, call=BIG)
        return step_of(scene.timeline(), [0, 1, 2, 0])

    found = sure(opened("json/__init__.py(120): dump"), "files-in-step")
    assert found.where == ["train.py:2", "train.py:3"]
    assert found.saving_ns.expected == pytest.approx(150e3, rel=0.05)
    assert finding(opened("json/__init__.py(299): loads"), "files-in-step") is None


def stored(storage: int) -> Tensor:
    return Tensor(shape=(1000, 1000), dtype="float32", storage=storage)


def chain(*names: str) -> StepModel:
    """Operators of 50 us, each of which reads what the one before it made."""
    scene = Scene(end=50 * len(names))
    for at, name in enumerate(names):
        args = (stored(100 + at), stored(50)) if name == "aten::mm" else (stored(100 + at),)
        scene.on_host(50 * at, 50 * at + 50, call=OpCall(name=name, args=args))
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(len(names), dtype=np.int32),
            storage=np.arange(101, 101 + len(names), dtype=np.int64),
            bytes=np.full(len(names), 4_000_000, np.int64),
        ),
    )
    return step_of(timeline, list(range(len(names))))


def test_log_of_softmax_is_one_operator() -> None:
    found = sure(chain("aten::_softmax", "aten::log", "aten::relu"), "softmax-log-apart")
    assert found.where == ["train.py:2", "train.py:1"]
    assert found.saving_ns.expected == pytest.approx(50e3, rel=0.1)
    apart = chain("aten::_softmax", "aten::relu", "aten::log")
    assert finding(apart, "softmax-log-apart") is None


def test_one_hot_matmul_is_a_lookup() -> None:
    found = sure(chain("aten::one_hot", "aten::_to_copy", "aten::mm"), "one-hot-products")
    assert found.saving_ns.expected > 0.8 * 150e3
    assert finding(chain("aten::relu", "aten::mm"), "one-hot-products") is None


def rounds(
    count: int,
    *,
    layers: bool = False,
    shapes: int = 1,
    optimizer: bool = True,
    inside: str | None = None,
    products: bool = False,
) -> StepModel:
    """One line that calls the same operator so often, on so many shapes, which the optimizer's
    operator has too; `layers`: each time inside another module; `inside`: all
    of them in a range of that name."""
    scene = Scene(end=count * 20 + 100)
    lines, phases = [], []
    if inside is not None:
        scene.on_host(0, count * 20, HostKind.PYTHON, inside)
        lines.append(0)
        phases.append(Phase.FORWARD)
    for at in range(count):
        start = at * 20
        if layers:
            scene.on_host(start, start + 20, HostKind.PYTHON, f"nn.Module: Linear_{at}")
            lines.append(0)
            phases.append(Phase.FORWARD)
        one = Tensor(shape=(8, 8 + at % shapes), dtype="float32", storage=1000 + at)
        call = OpCall(name="aten::mm", args=(tensor(4, 8), one)) if products else None
        call = call or OpCall(name="aten::mul_", args=(one,))
        scene.on_host(start, start + 10, call=call)
        lines.append(0)
        phases.append(Phase.FORWARD)
    args = tuple(tensor(8, 8 + at) for at in range(shapes)) if optimizer else (tensor(3),)
    scene.on_host(count * 20, count * 20 + 100, call=OpCall(name="aten::step", args=args))
    return step_of(scene.timeline(), [*lines, 2], phases=[*phases, Phase.OPTIMIZER])


def test_loop_of_one_call_is_distinguished_from_layers() -> None:
    found = sure(rounds(16, optimizer=False), "looped-calls")
    assert found.where == ["train.py:1"] and "16 rounds" in found.change
    assert finding(rounds(16, layers=True, optimizer=False), "looped-calls") is None
    assert finding(rounds(4, optimizer=False), "looped-calls") is None


def test_time_loop_over_two_modules_is_a_loop() -> None:
    scene = Scene(end=2000)
    scene.on_host(0, 1900, HostKind.PYTHON, "train.py(1): forward")
    lines = [0]
    for at in range(32):
        scene.on_host(at * 50, at * 50 + 40, HostKind.PYTHON, f"nn.Module: Linear_{at % 2}")
        scene.on_host(
            at * 50, at * 50 + 40, call=OpCall(name="aten::addmm", args=(tensor(32, 32),))
        )
        lines += [1, 1]
    step = step_of(scene.timeline(), lines)
    assert sure(step, "looped-calls").where == ["train.py:2"]


def test_layers_of_generated_code_at_one_line_are_not_a_loop() -> None:
    generated = rounds(16, optimizer=False, inside="<eval_with_key>.50(4): forward")
    assert finding(generated, "looped-calls") is None
    assert finding(rounds(16, optimizer=False, inside="train.py(4): loop"), "looped-calls")


def test_loop_over_parameters_is_recognised_by_shapes() -> None:
    assert sure(rounds(16, shapes=4), "looped-parameters").where == ["train.py:1"]
    assert finding(rounds(16, shapes=4, optimizer=False), "looped-parameters") is None


def test_loop_over_six_parameters_is_not_a_loop_of_calls() -> None:
    assert sure(rounds(6, shapes=6), "looped-parameters").where == ["train.py:1"]
    assert finding(rounds(5, shapes=5), "looped-parameters") is None
    assert finding(rounds(6, optimizer=False), "looped-calls") is None


def test_parameter_of_one_element_counts() -> None:
    scene = Scene(end=400)
    shapes = [(64, 64), (64,), (64, 64), (64,), (1, 64), (1,)]
    for at, shape in enumerate(shapes):
        one = Tensor(shape=shape, dtype="float32", storage=1000 + at)
        scene.on_host(50 * at, 50 * at + 40, call=OpCall(name="aten::pow", args=(one, 2)))
    args = tuple(tensor(*shape) for shape in shapes)
    scene.on_host(300, 400, call=OpCall(name="aten::step", args=args))
    phases = [Phase.FORWARD] * 6 + [Phase.OPTIMIZER]
    step = step_of(scene.timeline(), [0] * 6 + [2], phases=phases)
    assert sure(step, "looped-parameters").where == ["train.py:1"]


def test_fixed_loop_over_parameters_is_one_pass() -> None:
    """Two operators for each of 16 parameters; one for all does the work of one."""
    scene = Scene(end=16 * 200 + 100)
    shapes = [(1000, 1000 + at % 4) for at in range(16)]
    for at, shape in enumerate(shapes):
        one = Tensor(shape=shape, dtype="float32", storage=1000 + at)
        for more, name in enumerate(("aten::mul_", "aten::lerp_")):
            start = at * 200 + more * 100
            scene.on_host(start, start + 100, call=OpCall(name=name, args=(one,)))
    args = tuple(tensor(*shape) for shape in shapes)
    scene.on_host(3200, 3300, call=OpCall(name="aten::step", args=args))
    phases = [Phase.FORWARD] * 32 + [Phase.OPTIMIZER]
    step = step_of(scene.timeline(), [0] * 32 + [2], phases=phases)
    found = sure(step, "looped-parameters")
    assert 1600e3 <= found.saving_ns.expected < found.saving_ns.high <= 3200e3


def recurrence(chained: bool, name: str = "aten::mm") -> StepModel:
    """Sixteen operators of 50 us at one line; `chained`: each reads what the one before it made."""
    scene = Scene(end=16 * 60 + 100)
    for at in range(16):
        state = Tensor(shape=(32, 32), dtype="float32", storage=100 + (at if chained else 0))
        weight = Tensor(shape=(32, 32), dtype="float32", storage=50)
        call = OpCall(name=name, args=(state, weight))
        scene.on_host(60 * at, 60 * at + 50, call=call)
    scene.on_host(960, 1060, call=BIG)
    timeline = msgspec.structs.replace(
        scene.timeline(),
        allocations=Allocations(
            row=np.arange(16, dtype=np.int32),
            storage=np.arange(101, 117, dtype=np.int64),
            bytes=np.full(16, 4096, np.int64),
        ),
    )
    return step_of(timeline, [1] * 16 + [0])


def test_matmuls_of_a_recurrence_are_not_merged() -> None:
    apart = sure(recurrence(chained=False), "looped-calls").saving_ns.expected
    step = recurrence(chained=True)
    products = sum(op.ns for op in step.op_records if op.name == "aten::mm")
    chained = sure(step, "looped-calls").saving_ns.expected
    assert products > 500e3 and apart > 0.8 * products
    assert chained == pytest.approx(16 * 60e3 - products, rel=0.05)


def test_recurrence_without_a_cell_is_not_computed_at_once() -> None:
    assert finding(recurrence(chained=True, name="aten::logsumexp"), "looped-calls") is None
    assert finding(recurrence(chained=False, name="aten::logsumexp"), "looped-calls")


def called_in_each_round(models: bool = False) -> StepModel:
    """A line that calls a function 16 times, which makes two calls at a line of its own."""
    scene, source, called = Scene(end=2000), [0], [2]
    scene.on_host(0, 1900, HostKind.PYTHON, "train.py(1): main")
    for at in range(0, 1600, 100):
        scene.on_host(at, at + 90, HostKind.PYTHON, "train.py(2): one")
        source, called = [*source, 1], [*called, 0]
        if models:
            scene.on_host(at, at + 90, HostKind.PYTHON, "nn.Module: Net_0")
            source, called = [*source, 1], [*called, 1]
        for start, name in ((at, "aten::mm"), (at + 40, "aten::relu")):
            call = OpCall(name=name, args=(tensor(32, 32), tensor(32, 32)))
            scene.on_host(start, start + 40, call=call)
            source, called = [*source, 1], [*called, 1]
    places = np.array(source, np.int32), np.array(called, np.int32)
    return step_of(scene.timeline(), source, source=places[0], called=places[1])


def test_function_called_in_each_iteration_is_a_loop_body() -> None:
    found = sure(called_in_each_round(), "looped-calls")
    assert found.where == ["train.py:1", "train.py:2"]
    assert found.saving_ns.expected > 1400e3


def test_loop_lines_without_operators_count() -> None:
    scene, lines = Scene(end=1700), []
    for at in range(0, 1600, 100):
        scene.on_host(at, at + 40, call=OpCall(name="aten::relu", args=(tensor(32, 32),)))
        scene.on_host(at + 40, at + 100, HostKind.PYTHON, "lib/tables.py(5): look_up")
        lines += [0, 1]
    found = sure(step_of(scene.timeline(), lines), "looped-calls")
    assert found.saving_ns.expected > 1500e3


def test_repeated_calls_of_a_whole_model_are_not_a_loop() -> None:
    assert finding(called_in_each_round(models=True), "looped-calls") is None


def test_time_steps_inside_one_operator_are_not_a_script_loop() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 900, HostKind.OP, "aten::gru")
    for at in range(16):
        scene.on_host(at * 50, at * 50 + 40, call=OpCall(name="aten::mm", args=(tensor(32, 32),)))
    assert finding(step_of(scene.timeline(), [0] * 17), "looped-calls") is None


def test_rollout_iterations_are_not_a_loop_of_calls() -> None:
    def rounds_of(reads: bool) -> StepModel:
        scene = Scene(end=2000)
        product = OpCall(name="aten::mm", args=(tensor(32, 32), tensor(32, 32)))
        for at in range(0, 1600, 100):
            scene.on_host(at, at + 40, HostKind.PYTHON, "nn.Module: Net_0")
            scene.on_host(at, at + 40, call=product)
            scene.on_host(at + 40, at + 80, call=OpCall(name="aten::relu", args=(tensor(9),)))
            name = "<built-in method numpy of Tensor object at 0x7f>" if reads else "zip"
            scene.on_host(at + 80, at + 90, HostKind.PYTHON, name)
        return step_of(scene.timeline(), [0, 0, 1, 2] * 16)

    assert finding(rounds_of(reads=True), "looped-calls") is None
    assert finding(rounds_of(reads=False), "looped-calls")


def test_layer_weights_at_one_line_are_not_a_loop_over_parameters() -> None:
    assert finding(rounds(16, shapes=4, products=True), "looped-parameters") is None


def test_distribution_checks_are_recognised_by_their_frames() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "torch/distributions/constraints.py(400): check")
    scene.on_host(10, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [1, 1, 0]), "distribution-checks")
    assert found.where == ["train.py:2"]
    assert found.saving_ns.expected == pytest.approx(100e3, rel=0.2)


def test_recompilation_names_lines_and_compiler_reasons() -> None:
    seen = HostCounters(
        steps_ns=(250e3, 250e3),
        compiler_ns=(100e3, 0.0),
        compiled_again=(CompiledAgain(where="train.py:2", times=5, reason="size mismatch"),),
        graph_break_lines=(("train.py:3", "Unsupported Tensor.item() call"),),
    )
    evidence = StepEvidence(settings=ProgramSettings(compiled_at=["train.py:1"]))
    step = two_calls(evidence)
    step.host_counters = seen
    found = sure(step, "recompilation")
    assert found.where == ["train.py:1", "train.py:2", "train.py:3"]
    assert "train.py:2 was compiled 5 times: size mismatch" in found.evidence
    assert "graph break at train.py:3: Unsupported Tensor.item() call" in found.evidence


def test_recompilation_limit_is_reported_without_a_compilation() -> None:
    step = two_calls()
    again = (CompiledAgain(where="train.py:2", times=8),)
    step.host_counters = HostCounters(
        steps_ns=(250e3,), gave_up_compiling=True, compiled_again=again
    )
    detection = recompilation.detect(step)
    assert detection is not None and "dynamic=True" in detection.change
    assert "has run uncompiled" in detection.evidence


def values_read(count: int) -> StepModel:
    """A line that reads so many values, 20 us each, and a product."""
    scene = Scene(end=20 * count + 100)
    for at in range(count):
        scene.on_host(
            20 * at, 20 * at + 20, HostKind.OP, "aten::item", call=OpCall(name="aten::item")
        )
    scene.on_host(20 * count, 20 * count + 100, call=BIG)
    return step_of(scene.timeline(), [2] * count + [0])


def test_values_read_one_by_one_are_host_metrics() -> None:
    found = sure(values_read(10), "host-metrics")
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected == pytest.approx(200e3, rel=0.1)
    # A loss that is logged is one value.
    assert finding(values_read(1), "host-metrics") is None


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        ("<built-in method tolist of Tensor object>", True),
        ("<built-in method tolist of numpy.ndarray object>", False),
        ("<built-in method cpu of Tensor object>", False),
    ],
)
def test_values_read_from_numpy_arrays_are_not_host_metrics(function: str, counts: bool) -> None:
    scene = Scene(end=500)
    for at in range(10):
        scene.on_host(40 * at, 40 * at + 40, HostKind.PYTHON, function)
    scene.on_host(400, 500, call=BIG)
    found = finding(step_of(scene.timeline(), [2] * 10 + [0]), "host-metrics")
    assert (found is not None) == counts


def test_python_between_reads_belongs_to_metrics() -> None:
    scene = Scene(end=500)
    scene.on_host(0, 500, HostKind.PYTHON, "train.py(1): <module>")
    for at in range(10):
        scene.on_host(40 * at + 20, 40 * at + 40, call=OpCall(name="aten::item"))
    scene.on_host(400, 500, call=BIG)
    found = sure(step_of(scene.timeline(), [0] + [2] * 10 + [1]), "host-metrics")
    assert found.saving_ns.high == pytest.approx(400e3, rel=0.1)


def test_model_call_at_a_line_that_reads_its_loss_is_not_a_metric() -> None:
    scene = Scene(end=800)
    for start in range(0, 800, 200):
        scene.on_host(start, start + 180, HostKind.PYTHON, "nn.Module: Net_0")
        scene.on_host(start, start + 180, call=BIG)
        scene.on_host(start + 180, start + 200, call=OpCall(name="aten::item"))
    step = step_of(scene.timeline(), [2] * 12)
    found = sure(step, "host-metrics")
    assert found.saving_ns.high == pytest.approx(80e3, rel=0.1)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("sklearn/metrics/_classification.py(1180): f1_score", "host-metrics"),
        ("transformers/tokenization_utils_base.py(2900): __call__", "main-process-data"),
        ("PIL/Image.py(2400): resize", "main-process-data"),
        ("json/__init__.py(299): loads", "main-process-data"),
    ],
)
def test_metric_and_data_libraries_are_recognised_by_their_functions(
    function: str, fault: str
) -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, function)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 0]), fault)
    assert found.where == ["train.py:3"]
    assert found.saving_ns.expected > 80e3
    # Inside a loader's batch it is the loader's.
    loading = Scene(end=200)
    loading.on_host(0, 100, HostKind.DATA, "enumerate(DataLoader)#__next__")
    loading.on_host(0, 100, HostKind.PYTHON, function)
    loading.on_host(100, 200, call=BIG)
    assert finding(step_of(loading.timeline(), [2, 2, 0]), fault) is None


def test_fixed_shape_convolutions_without_cudnn_benchmark_are_reported() -> None:
    scene = Scene(end=100)
    launch = scene.on_host(0, 10, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 100, launch=launch)
    timeline = scene.timeline()
    record = SimpleNamespace(name="aten::cudnn_convolution", ns=90e3, floor_ns=40e3)

    def detected(setting: bool | None) -> object:
        step = SimpleNamespace(
            evidence=StepEvidence(settings=ProgramSettings(cudnn_benchmark=setting)),
            observation=None,
            op_records=[record],
            wall_ns=float(timeline.wall_ns),
            lines=lambda _: ["train.py:1"],
        )
        return cudnn_benchmark.detect(step)  # type: ignore[arg-type]

    found = detected(False)
    assert isinstance(found, Detection) and found.high.op_ns == {0: 90e3 - 0.6 * 50e3}
    assert detected(True) is None and detected(None) is None


def test_data_parallel_costs_its_copies() -> None:
    def on_device(*functions: str) -> StepModel:
        scene = Scene(end=400)
        sources = []
        scene.on_host(0, 300, HostKind.PYTHON, "torch/nn/parallel/data_parallel.py(170): forward")
        sources.append(1)
        for at, function in enumerate(functions):
            scene.on_host(100 * at, 100 * at + 100, HostKind.PYTHON, function)
            sources.append(1)
        scene.on_host(300, 320, call=BIG)
        launch = scene.on_host(310, 315, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(320, 400, launch=launch)
        return step_of(scene.timeline(), [*sources, 0, 0])

    copying = "torch/nn/parallel/replicate.py(78): replicate"
    found = sure(on_device(copying, copying), "data-parallel")
    assert found.where == ["train.py:2"]
    assert found.saving_ns.expected == pytest.approx(200e3, rel=0.3)
    assert finding(on_device(), "data-parallel") is None
