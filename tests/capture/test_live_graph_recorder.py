"""What runs while a graph is captured, noted without a device's profiler: the CPU will do."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from boundby.capture.process.plan import Plan
from boundby.capture.torch.capture import Capture
from boundby.capture.torch.graph_recorder import GraphRecorder
from boundby.capture.torch.graph_replays import Recording, parse, read
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.observe import observe
from boundby.capture.torch.recorder import Recorder
from boundby.diagnosis import diagnose
from boundby.model import Tensor
from tests.capture.kineto_events import Event, event, kernel, launch, mark, text, write
from tests.machines import round_machine

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"

COMPILED = """
import sys, types
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from boundby.capture.torch.graph_replays import read
from boundby.capture.torch.graph_recorder import GraphRecorder

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
step = torch.compile(model)
x = torch.randn(8, 64)
expected = step(x)
graphs = counters["stats"]["unique_graphs"]
notes = GraphRecorder(torch, Path(sys.argv[1]))
for _ in range(2):
    notes.capture_began(graph := types.SimpleNamespace())
    found = step(x)
    notes.capture_ends(graph)
assert torch.equal(found, expected) and torch.equal(step(x), expected)
assert counters["stats"]["unique_graphs"] == graphs
files, _ = notes.close()
names = [operator.name for operator in read(files[2], "cpu").operators]
assert "aten::addmm" in names, names
assert any("cpp_fused" in name or name == "CompiledFunction" for name in names), names
"""


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[GraphRecorder]:
    yield GraphRecorder(torch, tmp_path)
    assert not torch.autograd._profiler_enabled()
    assert torch.autograd.profiler._is_profiler_enabled is False
    assert isinstance(torch._C._profiler._RecordFunctionFast, type)


def captured(notes: GraphRecorder, work: Callable[[], object]) -> Recording:
    graph = types.SimpleNamespace()
    notes.capture_began(graph)
    work()
    notes.capture_ends(graph)
    files, _ = notes.close()
    recording = read(files[graph._boundby_number], "cpu")
    assert recording is not None
    return recording


def named(recording: Recording, name: str) -> Any:
    (found,) = [operator for operator in recording.operators if operator.name == name]
    return found


def test_a_training_step_is_recorded_with_its_arguments(notes: GraphRecorder) -> None:
    layer = torch.nn.Linear(16, 8)
    norm = torch.nn.LayerNorm(8)
    x = torch.randn(4, 16)
    recording = captured(notes, lambda: norm(layer(x)).sum().backward())
    product = named(recording, "aten::addmm")
    bias, rows, weights, *rest = product.call.args
    assert rows.shape == (4, 16) and rows.dtype == "float32" and rows.strides == (16, 1)
    assert weights.shape == (16, 8) and weights.strides == (1, 16)
    assert bias.shape == (8,) and rest[:2] == [1, 1]
    assert recording.operators[product.parent].name == "aten::linear"
    assert named(recording, "aten::native_layer_norm").call.args[1] == (8,)
    # The backward runs on a thread of the engine's, or on this one.
    assert named(recording, "aten::native_layer_norm_backward").call.tensors[0].shape == (4, 8)


def test_operators_and_their_backward_have_source_lines(notes: GraphRecorder) -> None:
    layer, x = torch.nn.Linear(16, 8), torch.randn(4, 16)

    def work() -> None:
        y = layer(x)
        z = y.exp()
        z.sum().backward()

    recording = captured(notes, work)
    first = work.__code__.co_firstlineno
    line = {operator.name: operator.source for operator in recording.operators}
    here = "capture/test_live_graph_recorder.py"
    assert line["aten::addmm"] == f"{here}:{first + 1}"
    assert line["aten::exp"] == f"{here}:{first + 2}"
    # The one multiplication is the exponential's backward, the one plain product the layer's.
    assert line["aten::mul"] == f"{here}:{first + 2}"
    assert line["aten::mm"] == f"{here}:{first + 1}"


def test_tensors_in_the_same_memory_are_recognised(notes: GraphRecorder) -> None:
    x = torch.randn(4, 4)
    call = named(captured(notes, lambda: torch.mm(x, x.t())), "aten::mm").call
    assert isinstance(call.args[0], Tensor) and isinstance(call.args[1], Tensor)
    assert call.args[0].storage == call.args[1].storage is not None


def test_lists_of_tensors_come_with_their_types(notes: GraphRecorder) -> None:
    lists = [torch.randn(3), torch.randn(5, dtype=torch.bfloat16)]
    call = named(captured(notes, lambda: torch._foreach_mul_(lists, 2.0)), "aten::_foreach_mul_")
    (tensors, factor) = call.call.args
    assert [(tensor.shape, tensor.dtype) for tensor in tensors] == [
        ((3,), "float32"),
        ((5,), "bfloat16"),
    ]
    assert factor == 2.0


def test_compiled_kernel_is_recorded_with_name_and_tensors(notes: GraphRecorder) -> None:
    x = torch.randn(4, 8)
    extras = {"kernel_backend": "triton", "kernel_file": "made.py", "stream": 0}

    def launch() -> None:
        # As the launcher of Inductor's kernels does while a profiler runs.
        assert torch.autograd.profiler._is_profiler_enabled
        with torch._C._profiler._RecordFunctionFast("triton_poi_fused_0", (x, 32), extras):
            pass

    kernel = named(captured(notes, launch), "triton_poi_fused_0")
    assert kernel.call.args[0].shape == (4, 8) and kernel.call.args[1] == 32


def test_recording_does_not_change_compiled_code(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", COMPILED, str(tmp_path)], check=True)


def test_recording_writes_nothing_to_stderr(
    notes: GraphRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    captured(notes, lambda: torch.randn(4) + 1)
    assert capfd.readouterr() == ("", "")


def test_operators_of_other_devices_are_omitted(notes: GraphRecorder) -> None:
    captured(notes, lambda: torch.randn(4) + 1)
    (path,) = notes.close()[0].values()
    recording = read(path)
    assert recording is not None and not recording.operators


def test_nothing_is_recorded_outside_of_captures(notes: GraphRecorder) -> None:
    recording = captured(notes, lambda: torch.ones(3))
    torch.zeros(3).mul(2)
    assert "aten::mul" not in [operator.name for operator in recording.operators]
    torch.add(torch.zeros(3), 1)
    assert len(notes.close()[0]) == 1


def test_execution_trace_observer_of_the_script_is_kept(
    notes: GraphRecorder, tmp_path: Path
) -> None:
    own = torch.profiler.ExecutionTraceObserver()
    own.register_callback(str(tmp_path / "own.json"))
    own.start()
    notes.capture_began(graph := types.SimpleNamespace())
    torch.ones(3).exp()
    notes.capture_ends(graph)
    own.stop()
    own.unregister_callback()
    assert not vars(graph)
    kept = parse((tmp_path / "own.json").read_bytes(), "cpu")
    assert kept is not None and "aten::exp" in [operator.name for operator in kept.operators]


def test_running_profiler_continues(notes: GraphRecorder) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        notes.capture_began(graph := types.SimpleNamespace())
        torch.ones(3).exp()
        notes.capture_ends(graph)
        torch.ones(3).cos()
    assert {"aten::exp", "aten::cos"} <= {event.key for event in profiler.key_averages()}


def test_recordings_respect_disk_limit(tmp_path: Path) -> None:
    notes = GraphRecorder(torch, tmp_path, most_bytes=1)
    for _ in range(3):
        notes.capture_began(graph := types.SimpleNamespace())
        torch.ones(3).exp()
        notes.capture_ends(graph)
    assert len(notes.close()[0]) == 1


def test_missing_folder_is_ignored(tmp_path: Path) -> None:
    notes = GraphRecorder(torch, tmp_path / "gone")
    notes.capture_began(graph := types.SimpleNamespace())
    notes.capture_ends(graph)
    assert not vars(graph) and notes.close() == ({}, [])


def test_truncated_recording_is_rejected() -> None:
    assert parse(b'{"schema": "1", "nodes": [{"id": 2,') is None


def test_all_capture_entry_points_are_recorded(notes: GraphRecorder) -> None:
    done: list[str] = []

    class Graph:
        def capture_begin(self, pool: object = None) -> None:
            done.append("begins")

        def capture_end(self) -> None:
            done.append("ends")

        def replay(self) -> None:
            done.append("replays")

    hooks = Hooks()
    hooks._is_compiling = lambda: False
    hooks._module_class = torch.nn.Module
    begin = hooks._around_capture_begin(Graph.capture_begin)
    end, replay = hooks._around_capture_end(Graph.capture_end), hooks._around_replay(Graph.replay)
    hooks.graphs = notes
    graph: Any = Graph()
    begin(graph)  # no watcher
    end(graph)
    assert not vars(graph)
    hooks.watcher = _Deaf()  # type: ignore[assignment]
    begin(graph, pool=None)
    torch.ones(3).exp()
    end(graph)
    replay(graph)
    notes.step_ended(profiles=True)
    replay(graph)
    replay(Graph())
    notes.step_ended(profiles=True)
    replay(graph)
    notes.step_ended(profiles=False)
    replay(graph)
    files, replays = notes.close()
    assert replays == [[graph._boundby_number, 0], [graph._boundby_number]]
    assert list(files) == [graph._boundby_number]
    assert done[:4] == ["begins", "ends", "begins", "ends"]


class _Deaf:
    def call_begins(self, *_: object) -> None:
        return


def test_replayed_graph_is_diagnosed_by_captured_operators(tmp_path: Path) -> None:
    """From notes taken on the CPU, as if on a device, and a trace of the graph's replay."""
    notes = GraphRecorder(torch, tmp_path)
    a, b = torch.randn(64, 128), torch.randn(128, 32)
    notes.capture_began(graph := types.SimpleNamespace())
    torch.add(torch.mm(a, b), 1.0)
    notes.capture_ends(graph)
    files, _ = notes.close()
    (path,) = files.values()
    path.write_text(path.read_text().replace('"cpu"', '"cuda:0"'))
    events: list[Event] = []
    for step in range(3):
        start = 1000.0 * step
        events += [
            mark(step, start, 1000),
            launch(step, start + 10, "cudaGraphLaunch"),
            event("cuda_driver", "cuGraphLaunch", start + 11, 2),
            kernel(step, start + 50, 300, "nvjet_sm90_tst_64x64", graph_id=1),
            kernel(
                step, start + 350, 200, f"{ELEMENTWISE}CUDAFunctorOnSelf_add<float>", graph_id=1
            ),
            kernel(step, start + 550, 100, "somebody_elses_kernel", graph_id=1),
        ]
    capture = Capture(
        step_by="forward",
        main_kind="forward",
        clean={"forward": [1e6] * 5},
        trace=write(tmp_path, text(events)),
        profiled=["forward"] * 3,
        graphs=files,
        replays=[[1], [1], [1]],
    )
    diagnosis = diagnose(observe(capture), round_machine())
    rows = {row.name: row for row in diagnosis.ops}
    assert rows["aten::mm"].flops == 2 * 64 * 128 * 32 and rows["aten::mm"].ns == 300e3
    # The number that is added counts as a tensor of one double.
    assert rows["aten::add"].bytes == 2 * 4 * 64 * 32 + 8
    where = rows["aten::mm"].where
    assert where is not None and where.startswith("capture/test_live_graph_recorder.py:"), where
    assert rows["aten::mm"].where == rows["aten::add"].where
    assert diagnosis.account.unknown.ns == pytest.approx(100e3)


def test_capture_continues_when_recording_fails(
    notes: GraphRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("not there")

    notes.step_ended(profiles=True)
    monkeypatch.setattr(torch._C._profiler, "_enable_execution_trace_observer", broken)
    notes.capture_began(graph := types.SimpleNamespace())
    notes.capture_ends(graph)
    (error,) = notes.failed
    assert isinstance(error, KeyError) and not vars(graph)
    monkeypatch.undo()
    # No more is recorded, and earlier recordings are not used.
    notes.capture_began(graph)
    notes.capture_ends(graph)
    notes.step_ended(profiles=True)
    notes.replayed(graph)
    assert notes.replays is None and notes.close()[1] == [] and not vars(graph)


def test_aborted_capture_is_not_waited_for(notes: GraphRecorder) -> None:
    notes.capture_began(graph := types.SimpleNamespace())
    assert torch.autograd._profiler_enabled()
    notes.step_ended(profiles=False)
    assert not torch.autograd._profiler_enabled() and not vars(graph)
    recording = captured(notes, lambda: torch.ones(3).exp())
    assert "aten::exp" in [operator.name for operator in recording.operators]


def test_capture_on_another_thread_is_not_recorded(notes: GraphRecorder) -> None:
    graph = types.SimpleNamespace()
    began, stepped = threading.Event(), threading.Event()

    def capture() -> None:
        notes.capture_began(graph)
        began.set()
        stepped.wait(60)
        torch.ones(3).exp()
        notes.capture_ends(graph)

    thread = threading.Thread(target=capture)
    thread.start()
    assert began.wait(60)
    notes.step_ended(profiles=False)
    stepped.set()
    thread.join()
    assert graph._boundby_number == 1 and not notes.failed


def test_recording_failure_is_reported(tmp_path: Path) -> None:
    recorder = Recorder(
        torch, plan=Plan(warmup=2), step_by="mark", folder=tmp_path, on_done=lambda: None
    )
    assert recorder.graphs is not None
    recorder.graphs.failed.append(KeyError("not there"))
    recorder.mark()
    capture = recorder.capture()
    assert capture.failure is not None
    assert (
        capture.failure.line
        == "recording the operators of captured CUDA graphs failed: KeyError: 'not there'"
    )
    assert capture.failure.line in [note.text for note in capture.notes]


def test_without_profile_captures_are_not_recorded(tmp_path: Path) -> None:
    plan = Plan(warmup=2, profiled=0)
    recorder = Recorder(torch, plan=plan, step_by="mark", folder=tmp_path, on_done=lambda: None)
    assert recorder.graphs is None
    recorder.mark()
    assert recorder.capture().graphs == {}
