"""Calls and modules that a step could do without, on steps made by hand."""

from __future__ import annotations

import pytest

from boundby.model import HostKind, OpCall
from boundby.model.evidence import GrowingInput, StepEvidence, UnreadResult, UnusedGraph
from boundby.model.host_counters import HostCounters
from boundby.step.model import StepModel
from tests.faults.program_steps import BIG, CALL, step_of, two_calls
from tests.faults.step_models import finding, sure
from tests.timelines import Scene, tensor

LINEAR = "torch/nn/modules/linear.py(100): __init__"
GROWING = GrowingInput(module="Net", where=["generate.py:9"], rows=2)


def test_module_constructed_in_the_step_is_reported_at_the_line_of_the_script() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "train.py(5): __init__")
    scene.on_host(10, 100, HostKind.PYTHON, LINEAR)
    scene.on_host(20, 100, HostKind.PYTHON, "torch/nn/init.py(90): uniform_")
    scene.on_host(20, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 1, 1, 1, 0]), "modules-made")
    assert found.where == ["train.py:3"]
    assert "never trained" in found.evidence
    assert found.saving_ns.expected > 80e3


def test_file_read_in_every_step_is_reported() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "torch/serialization.py(1300): load")
    scene.on_host(20, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    found = sure(step_of(scene.timeline(), [2, 2, 0]), "files-in-step")
    assert found.where == ["train.py:3"] and "before the loop" in found.change
    assert found.saving_ns.expected > 80e3


def test_called_module_is_not_counted_as_constructed() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 100, HostKind.PYTHON, "torch/nn/modules/linear.py(130): forward")
    scene.on_host(0, 100, call=BIG)
    scene.on_host(100, 200, call=BIG)
    assert finding(step_of(scene.timeline(), [2, 2, 0]), "modules-made") is None


@pytest.mark.parametrize("changes", [False, True])
def test_unread_forward_costs_its_call(changes: bool) -> None:
    evidence = StepEvidence(
        unread_results=[UnreadResult(call=CALL, changes=changes)],
        unused_graphs=[UnusedGraph(call=CALL)],
    )
    step = two_calls(evidence)
    found = sure(step, "unused-forward")
    assert found.where == CALL.where
    assert found.saving_ns.expected > 0
    assert (found.saving_ns.low == 0) == changes


def generating(*lengths: int, evidence: StepEvidence) -> StepModel:
    """Calls of a model on so many tokens each: a product of 100 us with weights of 4 kB."""
    scene = Scene(end=100.0 * len(lengths))
    for at, length in enumerate(lengths):
        start, end = 100.0 * at, 100.0 * at + 100
        scene.on_host(start, end, HostKind.PYTHON, "nn.Module: Net_0")
        args = (tensor(2, length, 32), tensor(32, 32))
        scene.on_host(start, end, call=OpCall(name="aten::matmul", args=args))
    return step_of(scene.timeline(), [1] * 2 * len(lengths), evidence)


def test_cache_leaves_one_token_to_compute() -> None:
    found = sure(generating(50, evidence=StepEvidence(growing_input=GROWING)), "no-key-value-cache")
    assert found.where == ["generate.py:9"]
    assert 90e3 < found.saving_ns.expected <= 98e3
    assert found.saving_ns.low == pytest.approx(found.saving_ns.expected / 2, rel=0.01)


def test_prompt_is_not_counted_as_recomputed() -> None:
    one = generating(40, 41, evidence=StepEvidence(growing_input=GROWING))
    assert sure(one, "no-key-value-cache").saving_ns.expected < 100e3


def test_trained_model_is_not_advised_to_use_a_cache() -> None:
    evidence = StepEvidence(growing_input=GROWING, has_backward=True)
    assert finding(generating(50, evidence=evidence), "no-key-value-cache") is None


def test_a_graph_of_short_operators_costs_no_more_memory_than_their_time() -> None:
    step = two_calls(StepEvidence(unused_graphs=[UnusedGraph(call=CALL)]))
    step.host_counters = HostCounters(steps_ns=(250e3,), step_pages=(9000,), fresh_page_ns=500.0)
    found = sure(step, "no-grad-missing")
    assert found.saving_ns.expected < 120e3
