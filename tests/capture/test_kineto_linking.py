"""What belongs to what: parents, launches, operators, lines, modules, phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boundby.capture import kineto
from boundby.capture.kineto import names
from boundby.capture.kineto.names import Origin, clean, frame_of
from boundby.model import DeviceKind, HostKind, OpCall, Phase, Tensor, Timeline
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
    text,
    write,
)


def timeline_of(folder: Path, events: list[Event]) -> Timeline:
    return kineto.read(write(folder, text(events))).timeline()


def row_of(timeline: Timeline, name: str) -> int:
    names = [timeline.names[number] for number in timeline.host.name]
    return names.index(name)


def source_of(timeline: Timeline, name: str) -> str | None:
    number = timeline.host.source[row_of(timeline, name)]
    return timeline.sources[number] if number >= 0 else None


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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", HostKind.LAUNCH),
        ("cuLaunchKernelEx", HostKind.LAUNCH),
        ("hipExtModuleLaunchKernel", HostKind.LAUNCH),
        ("hipGraphLaunch", HostKind.LAUNCH),
        ("cudaMemcpyAsync", HostKind.LAUNCH),
        ("cudaMemsetAsync", HostKind.LAUNCH),
        ("cudaStreamSynchronize", HostKind.SYNC),
        ("cudaDeviceSynchronize", HostKind.SYNC),
        ("hipEventSynchronize", HostKind.SYNC),
        ("cuStreamSynchronize", HostKind.SYNC),
        ("cudaMemcpy", HostKind.SYNC),
        ("hipMemcpyWithStream", HostKind.SYNC),
        ("cudaEventRecord", HostKind.RUNTIME),
        ("cudaStreamIsCapturing", HostKind.RUNTIME),
        ("cudaEventQuery", HostKind.RUNTIME),
    ],
)
def test_runtime_calls_are_classified(tmp_path: Path, name: str, kind: HostKind) -> None:
    timeline = timeline_of(tmp_path, [launch(1, 10, name)])
    assert timeline.host.kind.tolist() == [kind]


def test_copy_to_pageable_memory_is_a_sync(tmp_path: Path) -> None:
    copy = "Memcpy DtoH (Device -> Pageable)"
    events = [
        launch(1, 10, "cudaMemcpyAsync"),
        event("gpu_memcpy", copy, 20, 5, correlation=1, stream=7, bytes=4096),
    ]
    timeline = timeline_of(tmp_path, events)
    assert timeline.host.kind.tolist() == [HostKind.SYNC]
    assert timeline.device.kind.tolist() == [DeviceKind.COPY_D2H]
    assert timeline.device.bytes.tolist() == [4096]


@pytest.mark.parametrize(
    ("cat", "name", "kind"),
    [
        ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", DeviceKind.COLLECTIVE),
        ("kernel", "void gemm<float>", DeviceKind.KERNEL),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", DeviceKind.COPY_H2D),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", DeviceKind.COPY_D2D),
        ("gpu_memset", "Memset (Device)", DeviceKind.MEMSET),
    ],
)
def test_device_events_are_classified(
    tmp_path: Path, cat: str, name: str, kind: DeviceKind
) -> None:
    timeline = timeline_of(tmp_path, [event(cat, name, 10, 5, correlation=1, stream=7)])
    assert timeline.device.kind.tolist() == [kind]


def test_collective_has_its_size(tmp_path: Path) -> None:
    size = {"In msg nelems": 1000, "dtype": "BFloat16"}
    timeline = timeline_of(tmp_path, [kernel(1, 0, 5, "ncclDevKernel_AllGather", **size)])
    assert timeline.device.bytes.tolist() == [2000]


@pytest.mark.parametrize(
    "name",
    [
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "torch/utils/data/dataloader.py(700): __next__",
    ],
)
def test_waiting_for_data_is_classified(tmp_path: Path, name: str) -> None:
    cat = "python_function" if "(700)" in name else "user_annotation"
    timeline = timeline_of(tmp_path, [event(cat, name, 0, 10), op("aten::add", 20, 5)])
    assert timeline.host.kind.tolist() == [HostKind.DATA, HostKind.OP]


GENERATED = "c" + "ixwxmaze72dr6y3o5fidpymqpnlgbskwlbmcyfkkatpyhoagsvn"


@pytest.mark.parametrize(
    ("name", "origin", "source"),
    [
        ("train.py(42): main", Origin.USER, "train.py:42"),
        ("/home/me/project/train.py(42): main", Origin.USER, "project/train.py:42"),
        ("<stdin>(1): <module>", Origin.USER, "<stdin>:1"),
        ("torch/nn/functional.py(9): relu", Origin.TORCH, "torch/nn/functional.py:9"),
        ("/x/lib/python3.11/site-packages/torch/a.py(9): b", Origin.TORCH, "torch/a.py:9"),
        ("/x/lib/python3.11/site-packages/timm/a.py(9): b", Origin.LIBRARY, "timm/a.py:9"),
        ("transformers/models/bert.py(9): b", Origin.LIBRARY, "transformers/models/bert.py:9"),
        ("/usr/lib/python3.11/threading.py(1): run", Origin.TORCH, "threading.py:1"),
        ("threading.py(1030): _bootstrap", Origin.TORCH, "threading.py:1030"),
        ("/tmp/torchinductor_me/ab/c.py(5): call", Origin.TORCH, "ab/c.py:5"),
        (f"cache/vx/{GENERATED}.py(814): call", Origin.TORCH, f"cache/vx/{GENERATED}.py:814"),
        ("<built-in method mm of type object>", Origin.NOT_A_FRAME, ""),
        ("nn.Module: Linear_0", Origin.NOT_A_FRAME, ""),
    ],
)
def test_frame_owner_is_user_library_or_torch(name: str, origin: Origin, source: str) -> None:
    assert frame_of(name) == (origin, source)


def test_stacks_recorded_by_old_versions_are_read(tmp_path: Path) -> None:
    stack = "/x/site-packages/torch/nn/a.py(3): forward;main.py(54): <module>"
    given: Event = {"Call stack": stack}
    events = [event("Operator", "aten::add", 0, 10, **given)]
    assert source_of(timeline_of(tmp_path, events), "aten::add") == "main.py:54"


def test_names_are_cleaned_and_cut() -> None:
    assert clean("a\x1b[2Jb") == "a [2Jb"
    assert clean("<add of Tensor object at 0x7fc4e328ea30>") == "<add of Tensor object>"
    assert len(clean("x" * 10**6)) == 4096


@pytest.mark.parametrize(("size", "kind"), [(128, HostKind.LAUNCH), (1 << 20, HostKind.SYNC)])
def test_large_copy_from_pageable_memory_is_a_sync(
    tmp_path: Path, size: int, kind: HostKind
) -> None:
    copy = "Memcpy HtoD (Pageable -> Device)"
    events = [
        launch(1, 10, "cudaMemcpyAsync"),
        event("gpu_memcpy", copy, 20, 5, correlation=1, stream=7, bytes=size),
    ]
    assert timeline_of(tmp_path, events).host.kind.tolist() == [kind]


def test_modules_beside_the_script_are_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets").mkdir()
    for name in ("profile.py", "datasets/toy.py"):
        (tmp_path / name).touch()
    names = ("profile.py(3): step", "datasets/toy.py(4): batch")
    assert [frame_of(name).origin for name in names] == [Origin.TORCH, Origin.LIBRARY]
    monkeypatch.syspath_prepend(tmp_path)
    assert [frame_of(name).origin for name in names] == [Origin.USER, Origin.USER]
    others = ("threading.py(3): run", "datasets/load.py(4): load")
    assert [frame_of(name).origin for name in others] == [Origin.TORCH, Origin.LIBRARY]


def test_installed_packages_are_libraries_unless_the_script_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, own = tmp_path / "site-packages", tmp_path / "own"
    for folder in (installed, own):
        (folder / "graphs").mkdir(parents=True)
        (folder / "graphs" / "layers.py").touch()
    name = "graphs/layers.py(4): forward"
    assert frame_of(name).origin is Origin.USER
    monkeypatch.syspath_prepend(installed)
    assert frame_of(name).origin is Origin.LIBRARY
    monkeypatch.syspath_prepend(own)
    assert frame_of(name).origin is Origin.USER


def test_installed_commands_that_start_the_script_are_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names._is_launcher.cache_clear()
    (tmp_path / "boundby").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    seen = ["boundby(8): <module>", f"{tmp_path}/boundby(8): <module>", "train(3): main"]
    try:
        assert [frame_of(one).origin for one in seen] == [
            Origin.LIBRARY,
            Origin.LIBRARY,
            Origin.USER,
        ]
    finally:
        names._is_launcher.cache_clear()


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 300, "a" * 300 + ".py", f"/{'a' * 5000}.py"])
def test_names_that_no_file_can_have_are_the_users(name: str) -> None:
    assert frame_of(f"{name}(3): step").origin is Origin.USER
