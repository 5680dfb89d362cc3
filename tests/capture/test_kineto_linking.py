"""What belongs to what: parents, launches, operators, lines, modules, phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boundby.capture import kineto
from boundby.model import HostKind, OpCall, Phase, Tensor, Timeline
from tests.capture.kineto_events import (
    DATA,
    Event,
    event,
    frame,
    kernel,
    launch,
    mark,
    op,
    step_events,
)
from tests.capture.kineto_timelines import row_of, source_of, timeline_of


def phase_of(timeline: Timeline, name: str) -> Phase:
    return Phase(timeline.host.phase[row_of(timeline, name)])


def test_parent_is_the_innermost_enclosing_event(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, step_events())
    chain = []
    row = row_of(timeline, "cudaLaunchKernel")
    while row >= 0:
        chain.append(timeline.names[timeline.host.name[row]])
        row = int(timeline.host.parent[row])
    assert chain == [
        "cudaLaunchKernel",
        "aten::addmm",
        "aten::linear",
        "torch/nn/modules/linear.py(120): forward",
        "nn.Module: Net_0",
        "train.py(10): main",
        "ProfilerStep#0",
    ]


def test_without_correlations_launches_have_the_external_id_of_their_work(tmp_path: Path) -> None:
    events = step_events()
    for one in events:
        if (number := one["args"].pop("correlation", None)) is not None:
            one["args"]["External id"] = number
    timeline = timeline_of(tmp_path, events)
    names = [timeline.names[timeline.host.name[row]] for row in timeline.device.launch]
    assert names and set(names) == {"cudaLaunchKernel"}
    assert (timeline.device.op >= 0).all()


def test_strides_of_another_rank_are_unknown(tmp_path: Path) -> None:
    events = step_events()
    addmm = next(one for one in events if one["name"] == "aten::addmm")
    addmm["args"] = {**addmm["args"], "Input Strides": [[1], [16], [1, 16], [], []]}
    call = next(c for c in timeline_of(tmp_path, events).calls if c.name == "aten::addmm")
    assert [t.strides for t in call.args[:3] if isinstance(t, Tensor)] == [(1,), None, (1, 16)]


def test_lists_of_tensors_have_the_dtype_of_their_kernel(tmp_path: Path) -> None:
    lists: dict[str, Any] = {
        "Input Dims": [[[8, 8], [8]], []],
        "Input type": ["TensorList", "Scalar"],
    }
    name = "void at::native::multi_tensor_apply_kernel<BinaryOpScalarFunctor<c10::BFloat16, 1>>(x)"
    timeline = timeline_of(
        tmp_path,
        [
            mark(0, 0, 100),
            op("aten::_foreach_mul_", 10, 40, **lists),
            launch(1, 20),
            kernel(1, 40, 20, name),
            op("aten::_foreach_add_", 60, 20, **lists),
            launch(2, 65),
            kernel(2, 70, 20, "mystery"),
        ],
    )
    found = {call.name: call.args[0] for call in timeline.calls}
    known, unknown = found["aten::_foreach_mul_"], found["aten::_foreach_add_"]
    assert isinstance(known, tuple) and isinstance(unknown, tuple)
    assert [one.dtype for one in known if isinstance(one, Tensor)] == ["bfloat16"] * 2
    assert [one.dtype for one in unknown if isinstance(one, Tensor)] == [""] * 2


def test_rows_are_sorted_and_parents_come_first(tmp_path: Path) -> None:
    timeline = kineto.read(DATA / "bert_base_b1_overhead.json.gz").timeline()
    host = timeline.host
    keys = list(zip(host.thread, host.start_ns, -host.duration_ns, strict=True))
    assert keys == sorted(keys)
    assert all(parent < row for row, parent in enumerate(host.parent.tolist()))


def test_kernel_is_linked_to_launch_and_operator(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, step_events())
    names = [timeline.names[timeline.host.name[row]] for row in timeline.device.op]
    assert names == ["aten::addmm", "aten::relu"]
    assert timeline.host.kind[timeline.device.launch].tolist() == [HostKind.LAUNCH] * 2


def test_kernel_without_launch_uses_its_recorded_operator(tmp_path: Path) -> None:
    events = [entry for entry in step_events() if entry["cat"] != "cuda_runtime"]
    events[-1]["args"]["External id"] = 4
    timeline = timeline_of(tmp_path, events)
    assert len(set(timeline.device.launch.tolist())) == 1
    assert timeline.names[timeline.host.name[timeline.device.op[1]]] == "aten::relu"
    assert "launches-not-recorded" in {note.code for note in timeline.notes}


def test_arguments_become_tensors_and_values(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, step_events())
    assert timeline.calls == [
        OpCall(
            name="aten::addmm",
            args=(
                Tensor(shape=(8,), dtype="float32", strides=(1,)),
                Tensor(shape=(4, 16), dtype="bfloat16", strides=(16, 1)),
                Tensor(shape=(16, 8), dtype="bfloat16", strides=(1, 16)),
                1,
                1,
            ),
        )
    ]
    assert timeline.host.call[row_of(timeline, "aten::addmm")] == 0
    assert timeline.host.call[row_of(timeline, "aten::relu")] == -1


def test_tensor_lists_and_plain_values_are_decoded(tmp_path: Path) -> None:
    inputs: Event = {
        "Input Dims": [[[2, 3], [4, 3]], [], [], [], []],
        "Input type": ["TensorList", "Scalar", "ScalarList", "Scalar", ""],
        "Concrete Inputs": ["", "0.5", "[1, -1]", "True", "mean"],
    }
    timeline = timeline_of(tmp_path, [op("aten::cat", 0, 10, **inputs)])
    tensors = (Tensor(shape=(2, 3), dtype=""), Tensor(shape=(4, 3), dtype=""))
    assert timeline.calls[0].args == (tensors, 0.5, (1, -1), True, "mean")


def test_source_line_is_the_innermost_user_frame(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, step_events())
    assert source_of(timeline, "aten::addmm") == "train.py:10"
    assert source_of(timeline, "aten::relu") == "train.py:10"


def test_modules_are_dotted_paths(tmp_path: Path) -> None:
    events = [
        frame("nn.Module: Bert_0", 0, 100),
        frame("nn.Module: Layer_3", 10, 50),
        op("aten::mm", 20, 5),
        op("aten::add", 70, 5),
    ]
    timeline = timeline_of(tmp_path, events)
    modules = [
        timeline.modules[timeline.host.module[row_of(timeline, name)]]
        for name in ("aten::mm", "aten::add")
    ]
    assert modules == ["Bert_0.Layer_3", "Bert_0"]


def backward_events() -> list[Event]:
    """A forward on thread 1, its backward on thread 2 while thread 1 waits."""
    return [
        mark(0, 0, 300),
        frame("train.py(1): main", 0, 300),
        frame("model.py(20): forward", 5, 50),
        frame("nn.Module: Net_0", 6, 48),
        op("aten::linear", 10, 30, **{"Sequence number": 3, "Fwd thread id": 0}),
        op("aten::addmm", 12, 20, **{"Sequence number": 3, "Fwd thread id": 0}),
        frame("torch/_tensor.py(570): backward", 100, 80),
        op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            110,
            40,
            2,
            **{"Sequence number": 3, "Fwd thread id": 1},
        ),
        op("AddmmBackward0", 112, 30, 2, **{"Sequence number": 3, "Fwd thread id": 1}),
        op("aten::mm", 115, 20, 2),
        launch(7, 120, tid=2),
        kernel(7, 130, 20),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 155, 9, 2),
        op("aten::add_", 157, 5, 2),
        event("user_annotation", "Optimizer.step#SGD.step", 200, 60),
        op("aten::_foreach_add_", 210, 10),
    ]


def test_backward_kernel_has_line_and_module_of_its_forward(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, backward_events())
    row = int(timeline.device.op[0])
    assert timeline.names[timeline.host.name[row]] == "aten::mm"
    assert timeline.sources[timeline.host.source[row]] == "model.py:20"
    assert timeline.modules[timeline.host.module[row]] == "Net_0"


def again(*inside: Event) -> list[Event]:
    """The backward has its own sequence number, as with `create_graph`; a second one uses it."""
    drawn = {"Sequence number": 4, "Fwd thread id": 0}
    asked = {"Sequence number": 4, "Fwd thread id": 2}
    return [
        *(one for one in backward_events() if one["name"] != "aten::mm"),
        *inside,
        op("aten::mm", 117, 10, 2, **drawn),
        op("autograd::engine::evaluate_function: MmBackward0", 166, 9, 2, **asked),
        op("aten::bmm", 168, 5, 2),
    ]


def test_double_backward_has_the_line_of_the_forward(tmp_path: Path) -> None:
    assert source_of(timeline_of(tmp_path, again()), "aten::bmm") == "model.py:20"


def test_backward_of_recomputation_has_its_line(tmp_path: Path) -> None:
    recomputed = frame("model.py(31): block", 116, 15, 2)
    assert source_of(timeline_of(tmp_path, again(recomputed)), "aten::bmm") == "model.py:31"


def test_backward_without_a_forward_has_the_line_of_the_backward_call(tmp_path: Path) -> None:
    assert source_of(timeline_of(tmp_path, backward_events()), "aten::add_") == "train.py:1"


def test_phases_of_a_step_are_assigned(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, backward_events())
    assert phase_of(timeline, "aten::addmm") is Phase.FORWARD
    assert phase_of(timeline, "aten::mm") is Phase.BACKWARD
    assert phase_of(timeline, "cudaLaunchKernel") is Phase.BACKWARD
    assert phase_of(timeline, "aten::_foreach_add_") is Phase.OPTIMIZER
    assert phase_of(timeline, "train.py(1): main") is Phase.OTHER


def test_loss_in_a_closure_is_not_optimizer_phase(tmp_path: Path) -> None:
    events = [
        mark(0, 0, 300),
        event("user_annotation", "Optimizer.step#SGD.step", 10, 200),
        frame("torch/optim/sgd.py(93): step", 11, 198),
        frame("torch/utils/_contextlib.py(1): decorate_context", 12, 100),
        frame("train.py(9): closure", 13, 90),
        op("aten::nll_loss", 20, 5),
        frame("torch/_tensor.py(570): backward", 30, 30),
        op("aten::mul", 32, 5),
        op("aten::clamp", 70, 5),
        op("aten::_foreach_add_", 150, 10),
    ]
    timeline = timeline_of(tmp_path, events)
    assert phase_of(timeline, "aten::nll_loss") is Phase.FORWARD
    assert phase_of(timeline, "aten::mul") is Phase.BACKWARD
    assert phase_of(timeline, "aten::clamp") is Phase.FORWARD
    assert phase_of(timeline, "aten::_foreach_add_") is Phase.OPTIMIZER


def test_recomputed_module_is_backward_phase(tmp_path: Path) -> None:
    events = [
        *backward_events(),
        frame("nn.Module: Net_0", 121, 5, 2),
        op("aten::sin", 122, 2, 2),
    ]
    assert phase_of(timeline_of(tmp_path, events), "aten::sin") is Phase.BACKWARD
