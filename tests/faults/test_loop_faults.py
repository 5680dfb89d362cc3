"""Python loops over calls, parameters and time steps, on steps made by hand."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest

from boundby.faults import looped_parameters, python_in_step
from boundby.model import Allocations, HostKind, OpCall, Phase, Tensor
from boundby.model.evidence import SingleSamples, StepEvidence
from boundby.step.loops import looping_lines
from boundby.step.model import StepModel
from tests.faults import program_steps
from tests.faults.program_steps import BIG
from tests.faults.step_models import finding, sure
from tests.timelines import Scene, tensor

step_of = functools.partial(program_steps.step_of, functions=True)


def rounds(
    count: int,
    *,
    layers: bool = False,
    shapes: int = 1,
    optimizer: bool = True,
    inside: str | None = None,
    products: bool = False,
    functions: bool = True,
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
    phases.append(Phase.OPTIMIZER)
    return step_of(scene.timeline(), [*lines, 2], phases=phases, functions=functions)


def test_loop_of_one_call_is_distinguished_from_layers() -> None:
    found = sure(rounds(16, optimizer=False), "looped-calls")
    assert found.where == ["train.py:1"] and "16 rounds" in found.change
    assert finding(rounds(16, layers=True, optimizer=False), "looped-calls") is None
    assert finding(rounds(4, optimizer=False), "looped-calls") is None


@pytest.mark.parametrize("of_one_input", [True, False])
def test_branches_that_read_one_input_are_a_loop_and_layers_are_not(of_one_input: bool) -> None:
    """Sixteen heads, each of two operators."""
    scene = Scene(end=1600)
    lines = []
    for at in range(16):
        scene.on_host(at * 100, at * 100 + 100, HostKind.PYTHON, f"nn.Module: Head_{at}")
        read = 99 if of_one_input else 98 + 2 * at
        for more, storage in enumerate((read, 99 + 2 * at)):
            start = at * 100 + more * 50
            args = (Tensor(shape=(32, 32), dtype="float32", storage=storage), tensor(32, 32))
            scene.on_host(start, start + 50, call=OpCall(name="aten::mm", args=args))
        lines += [1, 1, 1]
    timeline = scene.timeline()
    operators = np.flatnonzero(timeline.host.kind == HostKind.OP).astype(np.int32)
    allocations = Allocations(
        row=operators,
        storage=np.arange(99, 131, dtype=np.int64),
        bytes=np.full(32, 4096, np.int64),
    )
    step = step_of(msgspec.structs.replace(timeline, allocations=allocations), lines)
    found = finding(step, "looped-calls")
    assert (found is not None) == of_one_input


def test_without_calls_of_functions_layers_at_one_line_are_not_a_loop() -> None:
    """Old traces give each operator its line, but no module or function around it."""
    assert finding(rounds(16, optimizer=False, functions=False), "looped-calls") is None


@pytest.mark.parametrize("singly", [True, False])
def test_a_model_called_on_one_sample_after_the_other_is_a_loop(singly: bool) -> None:
    """In training; without evidence it is training on several batches."""
    scene = Scene(end=1600)
    scene.on_host(0, 1600, HostKind.PYTHON, "train.py(1): train")
    lines, called = [0], [0]
    for at in range(16):
        scene.on_host(at * 100, at * 100 + 90, HostKind.PYTHON, "nn.Module: Net_0")
        scene.on_host(at * 100, at * 100 + 80, HostKind.PYTHON, "train.py(9): forward")
        args = (tensor(1, 32), tensor(32, 32))
        scene.on_host(at * 100, at * 100 + 80, call=OpCall(name="aten::mm", args=args))
        lines += [1, 2, 2]
        called += [1, 1, 2]
    found = SingleSamples(where=["train.py:2"], samples=16) if singly else None
    evidence = StepEvidence(single_samples=found, has_backward=True)
    step = step_of(scene.timeline(), lines, evidence, called=np.array(called, np.int32))
    loop = finding(step, "looped-calls")
    assert (loop is not None) == singly
    assert loop is None or loop.where[0] == "train.py:2"


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


def test_two_loops_at_one_line_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that updates averages is called for each of two networks."""
    monkeypatch.setattr(looped_parameters, "looping_lines", lambda *args: 2 * looping_lines(*args))
    assert sure(rounds(16, shapes=4), "looped-parameters").where == ["train.py:1"]


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


def test_counts_and_sums_of_the_rounds_are_no_recurrence() -> None:
    assert finding(recurrence(chained=True, name="aten::index_put_"), "looped-calls")


def called_from_a_library(calls: int) -> StepModel:
    """A line that calls a library `calls` times, which runs 16 products altogether."""
    scene, source, called = Scene(end=2000), [0], [2]
    scene.on_host(0, 1900, HostKind.PYTHON, "train.py(1): main")
    each = 1600 // calls
    for at in range(0, 1600, each):
        scene.on_host(at, at + each - 5, HostKind.PYTHON, "lib/pipeline.py(5): run")
        source, called = [*source, 0], [*called, 0]
        for start in range(at, at + each, 100):
            call = OpCall(name="aten::mm", args=(tensor(32, 32), tensor(32, 32)))
            scene.on_host(start, start + 40, call=call)
            source, called = [*source, 0], [*called, 0]
    places = np.array(source, np.int32), np.array(called, np.int32)
    return step_of(scene.timeline(), source, source=places[0], called=places[1])


def test_a_loop_inside_one_call_of_a_library_is_no_loop_of_the_script() -> None:
    assert finding(called_from_a_library(calls=1), "looped-calls") is None
    assert finding(called_from_a_library(calls=2), "looped-calls") is None
    assert sure(called_from_a_library(calls=16), "looped-calls").where == ["train.py:1"]


def test_comprehension_is_a_loop_of_the_script() -> None:
    """It is a function whose line is the one that calls it."""
    scene, source, called = Scene(end=1800), [0, 1], [2, 1]
    scene.on_host(0, 1700, HostKind.PYTHON, "train.py(1): main")
    scene.on_host(0, 1600, HostKind.PYTHON, "train.py(2): <listcomp>")
    for at in range(0, 1600, 100):
        scene.on_host(at, at + 90, call=OpCall(name="aten::eq", args=(tensor(32, 32), 3)))
        source, called = [*source, 1], [*called, 1]
    step = step_of(
        scene.timeline(), source, source=np.array(source, np.int32), called=np.array(called)
    )
    assert sure(step, "looped-calls").where == ["train.py:2"]


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
    # The Python between the calls is an environment's.
    assert "num_envs" in python_in_step._change(rounds_of(reads=True))
    assert "num_envs" not in python_in_step._change(rounds_of(reads=False))


def test_loop_between_the_calls_of_a_model_is_found() -> None:
    """In each of 16 rounds a model is called, and a line reads 16 values that it made."""
    scene, lines = Scene(end=16 * 300), []
    product = OpCall(name="aten::mm", args=(tensor(32, 32), tensor(32, 32)))
    for start in range(0, 16 * 300, 300):
        scene.on_host(start, start + 40, HostKind.PYTHON, "nn.Module: Net_0")
        scene.on_host(start, start + 40, call=product)
        lines += [0, 0]
        for at in range(start + 40, start + 280, 15):
            scene.on_host(at, at + 10, call=OpCall(name="aten::mul_", args=(tensor(9),)))
            name = "<built-in method item of Tensor object at 0x7f>"
            scene.on_host(at + 10, at + 12, HostKind.PYTHON, name)
            lines += [1, 1]
    step = step_of(scene.timeline(), lines)
    assert sure(step, "host-metrics").where == ["train.py:2"]


def test_rounds_on_tensors_of_different_sizes_are_a_loop() -> None:
    scene = Scene(end=2000)
    for at in range(16):
        call = OpCall(name="aten::mean", args=(tensor(5 + at, 32), (0,), False, None))
        scene.on_host(100 * at, 100 * at + 90, call=call)
    scene.on_host(1900, 2000, call=BIG)
    step = step_of(scene.timeline(), [1] * 16 + [0])
    assert sure(step, "looped-calls").where == ["train.py:2"]


def taken_out(maker: str) -> StepModel:
    """Sixteen rounds, each with a backward of a large tensor."""
    scene = Scene(end=16 * 100 + 16 * 1000)
    rows, large = [], OpCall(name="aten::add", args=(tensor(1_000_000), tensor(1_000_000)))
    for at in range(16):
        call = OpCall(name=maker, args=(tensor(1_000_000), 0, at))
        rows.append(scene.on_host(100 * at, 100 * at + 100, call=call))
    for at in range(16):
        scene.on_host(1600 + 1000 * at, 1600 + 1000 * at + 1000, call=large)
    phases = [Phase.FORWARD] * 16 + [Phase.BACKWARD] * 16
    forward = np.array([-1] * 16 + rows, np.int32)
    return step_of(scene.timeline(), [1] * 32, phases=phases, forward=forward)


def test_backward_of_taking_parts_out_is_made_once() -> None:
    """A gradient of the whole tensor for each part; for all of them together it is made once."""
    parts = sure(taken_out("aten::select"), "looped-calls").saving_ns.expected
    whole = sure(taken_out("aten::relu"), "looped-calls").saving_ns.expected
    # The machine copies 12 MB in about 4 us.
    assert parts > whole + 50e3


LOADS = "torch/nn/modules/module.py(2516): load_state_dict"


def averaged(*, then: str = "lib/other.py(5): work", reads: bool = False) -> StepModel:
    """An average of 16 parameters at the first line, and a function of 1 ms at the second; `reads`:
    the script reads each result."""
    scene, lines = Scene(end=2700), []
    for at in range(16):
        one = Tensor(shape=(100, 100 + at % 4), dtype="float32", storage=1000 + at)
        scene.on_host(100 * at, 100 * at + 80, call=OpCall(name="aten::mul", args=(one,)))
        lines.append(0)
        if reads:
            name = "<built-in method item of Tensor object at 0x7f>"
            scene.on_host(100 * at + 80, 100 * at + 90, HostKind.PYTHON, name)
            lines.append(0)
    scene.on_host(1600, 2600, HostKind.PYTHON, then)
    lines.append(1)
    args = tuple(tensor(100, 100 + at) for at in range(4))
    scene.on_host(2600, 2700, call=OpCall(name="aten::step", args=args))
    phases = [Phase.FORWARD] * len(lines) + [Phase.OPTIMIZER]
    return step_of(scene.timeline(), [*lines, 2], phases=phases)


def test_state_dictionary_beside_a_loop_over_parameters_is_part_of_it() -> None:
    without = sure(averaged(), "looped-parameters").saving_ns.expected
    beside = sure(averaged(then=LOADS), "looped-parameters").saving_ns.expected
    assert beside == pytest.approx(without + 1e6, rel=0.02)


def copied_before_a_loop(*, read: bool) -> StepModel:
    """A copy of 0.9 ms, of which 0.1 ms are an operator's."""
    scene, lines = Scene(end=2700), [1, 1]
    scene.on_host(0, 900, HostKind.PYTHON, "lib/copy.py(128): deepcopy")
    weight = Tensor(shape=(100, 100), dtype="float32", storage=500)
    made = scene.on_host(100, 200, call=OpCall(name="aten::clone", args=(weight,)))
    for at in range(16):
        one = Tensor(shape=(100, 100 + at % 4), dtype="float32", storage=1000 + at)
        copied = Tensor(shape=(100, 100), dtype="float32", storage=600 if read else 700)
        call = OpCall(name="aten::mul", args=(one, copied))
        scene.on_host(1000 + 100 * at, 1080 + 100 * at, call=call)
        lines.append(0)
    args = tuple(tensor(100, 100 + at) for at in range(4))
    scene.on_host(2600, 2700, call=OpCall(name="aten::step", args=args))
    allocations = Allocations(
        row=np.array([made], np.int32), storage=np.array([600]), bytes=np.array([40_000])
    )
    timeline = msgspec.structs.replace(scene.timeline(), allocations=allocations)
    phases = [Phase.FORWARD] * len(lines) + [Phase.OPTIMIZER]
    return step_of(timeline, [*lines, 2], phases=phases)


def test_copy_that_a_loop_over_parameters_reads_is_part_of_it() -> None:
    alone, read = copied_before_a_loop(read=False), copied_before_a_loop(read=True)
    assert finding(alone, "copied-state") and not finding(read, "copied-state")
    with_copy, without = (sure(step, "looped-parameters").saving_ns.high for step in (read, alone))
    assert with_copy > without + 0.5e6


def test_norms_that_are_read_one_by_one_are_not_needed_in_every_step() -> None:
    updated = sure(averaged(), "looped-parameters").saving_ns
    reading = sure(averaged(reads=True), "looped-parameters")
    assert "one read of all" in reading.change
    read = reading.saving_ns
    assert read.expected > updated.expected and read.expected == pytest.approx(read.high)


def test_layer_weights_at_one_line_are_not_a_loop_over_parameters() -> None:
    assert finding(rounds(16, shapes=4, products=True), "looped-parameters") is None
