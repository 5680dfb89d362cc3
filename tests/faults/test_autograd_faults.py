"""Repeated calls, unused graphs and gradients: found from evidence, not without it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.model import HostKind, OpCall, Phase
from boundby.model.evidence import (
    Growth,
    KeptGraph,
    RepeatedBackward,
    RepeatedCall,
    SingleSamples,
    StepEvidence,
    UnclearedSteps,
    UnusedGradients,
    UnusedGraph,
)
from boundby.model.host_counters import HostCounters
from boundby.step.model import StepModel
from tests.faults.program_steps import BIG, CALL, FIRST, step_of, two_calls
from tests.faults.step_models import finding, sure
from tests.timelines import Scene, tensor


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


def test_recording_costs_a_share_of_its_operators_at_most() -> None:
    """A machine measured under load has slow nodes, and a small forward few microseconds."""
    step = two_calls(StepEvidence(unused_graphs=[UnusedGraph(call=CALL)]))
    step.timeline.host.sequence[:] = np.arange(len(step.timeline.host))
    overheads = msgspec.structs.replace(step.machine.overheads, eager_op_ns=2e3, trained_op_ns=1e9)
    step.machine = msgspec.structs.replace(step.machine, overheads=overheads)
    found = sure(step, "no-grad-missing")
    assert found.saving_ns.expected <= 100e3


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
    frozen = msgspec.structs.replace(unused, unowned=True, parts=["embed", "layers.0"])
    found = sure(backward(StepEvidence(unused_gradients=[frozen])), "unused-gradients")
    assert found.change.endswith("no optimizer has embed, layers.0")
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


def test_kept_graphs_are_reported_at_the_line_that_keeps_them() -> None:
    growth = Growth(where=["train.py:1"], nodes_per_step=4)
    found = sure(two_calls(StepEvidence(growth=growth)), "growing-memory")
    assert found.saving_ns.expected == pytest.approx(25e3, rel=0.1)
    inference = StepEvidence(growth=growth, unused_graphs=[UnusedGraph(call=CALL)])
    assert finding(two_calls(inference), "growing-memory") is None


def test_one_step_between_gradient_clearings_remains() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    evidence = StepEvidence(uncleared=UnclearedSteps(where=["train.py:2"], steps_per_clear=4))
    step = step_of(scene.timeline(), [0, 1], evidence, phases=[Phase.FORWARD, Phase.OPTIMIZER])
    found = sure(step, "optimizer-too-often")
    assert found.saving_ns.expected == pytest.approx(75e3, rel=0.05)
