"""What the host still does for a compiled step: launches, and calls of what cannot be fused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from boundby.faults import unfused_operators
from boundby.faults.unfused_operators import _all_remains, _arithmetic_remains, _pass_ns
from boundby.model import Allocations, Argument, HostKind, OpCall, Phase
from boundby.step.compiled_host import _Operators, compiled_host_ns, launch_costs
from boundby.step.function_cost import function_flops
from boundby.step.fusion_groups import chains_of
from boundby.step.graph_break_regions import Uncompiled, graph_break_rows
from boundby.step.model import StepModel
from tests.faults.step_models import in_phase, step_model_of
from tests.step.test_dataflow import BYTES, ELEMENTS, at, chain
from tests.timelines import Scene

US = 1000.0


def step(
    *names: str, python_us: float = 30.0, operator_us: float = 20.0, tidying_us: float = 0.0
) -> StepModel:
    """Each operator launches at its end, or tidies up after it; Python takes its time before it."""
    scene = Scene()
    clock, rows = 0.0, []
    for place, name in enumerate(names):
        clock += python_us
        given = (at(place + 1, shape=(8192, 8192)),) * (2 if name == "mm" else 1)
        call = OpCall(name=f"aten::{name}", args=given)
        rows.append(scene.on_host(clock, clock + operator_us + tidying_us, call=call))
        clock += operator_us
        launch = scene.on_host(clock - 1, clock, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(clock, clock + 5, launch=launch)
        clock += tidying_us
    scene.end = clock + 10
    made = np.arange(2, len(names) + 2)
    allocations = Allocations(
        row=np.array(rows, np.int32), storage=made, bytes=np.full(len(names), BYTES)
    )
    return step_model_of(msgspec.structs.replace(scene.timeline(), allocations=allocations))


def test_operator_has_its_own_host_time() -> None:
    operators = _Operators.of(step("mm", "cos", "mm"))
    # The first has no Python before it that was seen.
    assert operators.own_ns[1:] == pytest.approx([20 * US] * 2)
    assert operators.alone.all() and operators.first.all()


def test_time_after_last_launch_belongs_to_operator() -> None:
    own = _Operators.of(step("mm", "cos", "mm", tidying_us=7.0)).own_ns
    assert own[1] == pytest.approx(27 * US)


@pytest.mark.parametrize("operator_us", [10.0, 40.0])
def test_compiled_kernel_slows_down_like_observed_operators(operator_us: float) -> None:
    step_model = step("mm", "cos", "sin", "mm", operator_us=operator_us)
    overheads = step_model.machine.overheads
    assert overheads.eager_op_ns is not None
    alone = overheads.compiled_kernel_ns or overheads.eager_op_ns
    worst, expected, best = launch_costs(step_model)
    assert expected == pytest.approx(alone * operator_us * US / overheads.eager_op_ns)
    assert best <= expected < worst


def test_training_step_launches_training_kernels() -> None:
    forward = step("mm", "cos", "sin", "mm", operator_us=16.0)
    overheads = msgspec.structs.replace(
        forward.machine.overheads, compiled_kernel_ns=10_000, trained_kernel_ns=17_000
    )
    machine = msgspec.structs.replace(forward.machine, overheads=overheads)
    trained = in_phase(forward.timeline, Phase.BACKWARD, slice(4, None))
    # Twice as long inside the step as on their own, where nothing is kept for a backward.
    assert launch_costs(step_model_of(forward.timeline, machine))[1] == pytest.approx(20_000)
    worst, expected, best = launch_costs(step_model_of(trained, machine))
    assert expected == pytest.approx(17_000)
    assert best < expected < worst


def test_unfusible_operators_keep_their_calls() -> None:
    step_model = step("mm", "cos", "sin", "cos", "mm")
    detection = unfused_operators.detect(step_model)
    assert detection is not None
    launch = launch_costs(step_model)[1]
    # Entering it is counted with the first.
    _, fused, *gone, last = step_model.apply(detection.expected).launches.host_ns
    assert fused == pytest.approx(launch)
    assert gone == [0.0, 0.0]
    assert last == pytest.approx(20 * US)


def test_chain_counts_kernels_of_its_reductions() -> None:
    step_model = step("mm", "cos", "sum", "mm")
    assert step_model.flow is not None
    (chain,) = [one for one in chains_of(step_model, step_model.flow) if len(one.op_records) > 1]
    assert chain.reductions == 2


def in_a_layer(step_model: StepModel, first: int, last: int) -> StepModel:
    """The same step, some of its operators called by a recurrent layer: the host's rows from one
    to another."""
    timeline = step_model.timeline
    host = timeline.host
    parent = host.parent.copy()
    parent[[row for row in range(first + 1, last) if parent[row] < 0]] = first
    names = [*timeline.names, "aten::lstm"]
    name = host.name.copy()
    name[first] = len(names) - 1
    host = msgspec.structs.replace(host, parent=parent, name=name)
    return step_model_of(msgspec.structs.replace(timeline, names=names, host=host))


def test_recurrent_layer_is_unchanged_and_breaks_the_graph() -> None:
    plain = step("cos", "cos", "sin", "cos", "sin", "mm")
    # Rows two by two: an operator and its launch. The layer is the third, around the fourth.
    layered = in_a_layer(plain, 4, 8)
    assert graph_break_rows(plain) == Uncompiled(frozenset(), 0, frozenset())
    left = graph_break_rows(layered)
    assert {layered.op_records[index].row for index in left.op_records} == {
        4,
        6,
    } and left.calls == 1
    assert layered.flow is not None
    fused = [
        {layered.op_records[index].row for index in chain.op_records}
        for chain in chains_of(layered, layered.flow)
        if len(chain.op_records) > 1
    ]
    assert fused == [{0, 2}]
    launch = launch_costs(layered)[1]
    host = compiled_host_ns(layered, [], launch)
    assert host[2:4] == pytest.approx(layered.launches.host_ns[2:4])
    # Going in twice, and not once.
    memoised = compiled_host_ns(plain, [], launch)[0]
    assert host[0] - launch == pytest.approx(2 * (memoised - launch), rel=0.2)


def in_modules(step_model: StepModel, *modules: str) -> StepModel:
    """The same step, operator by operator in these modules; in none where the name is empty."""
    timeline = step_model.timeline
    table = sorted({name for name in modules if name})
    of_rows = [table.index(name) if name else -1 for name in modules for _ in range(2)]
    host = msgspec.structs.replace(timeline.host, module=np.array(of_rows, np.int32))
    return step_model_of(msgspec.structs.replace(timeline, host=host, modules=table))


def test_operators_outside_the_model_are_not_compiled() -> None:
    """The script's own, and a loss that is a module: the model is what multiplies something."""
    plain = step("cos", "sin", "mm", "cos", "sin", "cos", "sin", "cos")
    inner, outer, loss = "Net_0.Block_0", "Net_0", "Loss_0"
    modules = [outer, inner, inner, inner, outer, "", loss, loss]
    placed = in_modules(plain, *modules)
    left = graph_break_rows(placed)
    assert left.op_records == left.outside == {5, 6, 7} and not left.calls
    assert placed.flow is not None and plain.flow is not None
    fused = [chain.op_records for chain in chains_of(placed, placed.flow)]
    assert fused == [[0, 1], [3, 4]]
    assert [3, 4, 5, 6, 7] in [chain.op_records for chain in chains_of(plain, plain.flow)]
    host = compiled_host_ns(placed, [], launch_costs(placed)[1])
    assert host[5:] == pytest.approx(placed.launches.host_ns[5:])


def test_all_operators_may_be_compiled_without_a_known_model() -> None:
    step_model = in_modules(step("mm", "cos", "sin"), "", "Loss_0", "Loss_0")
    assert not graph_break_rows(step_model).op_records


def handed_on(*names: str) -> StepModel:
    """Each hands 64 Mi numbers to the next, on a device."""
    side = 8192
    weight, few = at(90, shape=(side,)), at(91, shape=(side, 1))
    given: dict[str, tuple[Argument, ...]] = {
        "native_layer_norm": ((side,), weight, weight, 1e-5),
        "native_layer_norm_backward": (
            at(92, shape=(side, side)),
            (side,),
            few,
            few,
            weight,
            weight,
            (True, True, True),
        ),
    }
    steps = [
        (name, (at(place + 1, shape=(side, side)), *given.get(name, ("none",))), place + 2)
        for place, name in enumerate(names)
    ]
    return step_model_of(chain(*steps, each_us=900.0))


def fused(*names: str) -> float:
    """What a chain of these is expected to take as one kernel, in us."""
    detection = unfused_operators.detect(handed_on(*names))
    assert detection is not None
    return sum(detection.expected.op_ns.values()) / US


def test_transcendental_functions_cost_time_in_row_reductions() -> None:
    """72 FLOPs for each of 64 Mi numbers at 50 TFLOP/s: as long as 483 MB of memory's traffic."""
    gelu = 72 * ELEMENTS / 5e13 * 1e6
    simple = fused("sin", "cos")
    assert gelu < simple
    assert fused("gelu", "cos") == pytest.approx(simple)  # hidden behind the traffic
    assert fused("gelu", "gelu", "gelu", "cos") == pytest.approx(3 * gelu)
    by_rows = fused("sin", "native_layer_norm")
    assert fused("gelu", "native_layer_norm") == pytest.approx(by_rows + gelu)


def test_tanh_gelu_is_faster_than_erf_gelu() -> None:
    (gelu,) = step_model_of(chain(("gelu", (at(1),), 2))).op_records
    plain, quick = (OpCall(name="aten::gelu", args=(at(1), kind)) for kind in ("none", "tanh"))
    assert function_flops(gelu, plain) == 72 * ELEMENTS
    assert function_flops(gelu, quick) == 47 * ELEMENTS


def test_worst_case_reads_norm_gradients_from_memory() -> None:
    """In float32, written and read: 537 MB at 5 TB/s."""
    step_model = handed_on("sin", "native_layer_norm_backward")
    assert step_model.flow is not None
    (both,) = chains_of(step_model, step_model.flow)
    worst, expected = (
        _pass_ns(step_model, both, 1.0, stays) for stays in (_all_remains, _arithmetic_remains)
    )
    assert worst - expected == pytest.approx(2 * BYTES / 5e12 * 1e9)
