"""Where steps are cut, and what time each is charged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundby.capture import kineto
from boundby.capture.kineto.batches import kind_of_batch
from boundby.capture.kineto.period import find_period
from boundby.capture.kineto.source import observe_trace
from boundby.model import HostKind
from tests.capture.kineto_events import (
    Event,
    codes,
    event,
    frame,
    kernel,
    launch,
    mark,
    op,
    text,
    write,
)


def read(folder: Path, events: list[Event]) -> kineto.Trace:
    return kineto.read(write(folder, text(events)))


def loop(steps: int, *, markers: bool = True, first_number: int = 100) -> list[Event]:
    """The host issues a step in 100 us; the device needs 150 for it and lags ever further."""
    events: list[Event] = []
    for step in range(steps):
        start = 100.0 * step
        if markers:
            events.append(mark(step, start, 100))
        for index, name in enumerate(["embed", "gemm", "relu", "gemm", "loss"]):
            number = first_number + 5 * step + index
            events.append(op(f"aten::{name}", start + 2 + 18 * index, 12))
            events.append(launch(number, start + 4 + 18 * index))
            events.append(kernel(number, 150.0 * step + 30 * index + 10, 30, name))
    return events


def test_markers_are_steps(tmp_path: Path) -> None:
    trace = read(tmp_path, loop(4))
    assert trace.steps_from == "markers"
    assert [step.label for step in trace.steps] == [f"ProfilerStep#{n}" for n in range(4)]
    assert trace.notes == []


def test_device_work_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    trace = read(tmp_path, loop(4))
    for index in range(4):
        assert len(trace.timeline(index).device) == 5


def test_steps_follow_each_other_without_overlap_or_gap(tmp_path: Path) -> None:
    steps = read(tmp_path, loop(4)).steps
    assert steps[0].start_ns == 0
    for before, after in pairwise(steps):
        assert before.end_ns == after.start_ns
    assert [step.wall_ns for step in steps[1:]] == [150_000] * 3


def test_work_on_a_side_stream_does_not_lengthen_its_step(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 900, 9, correlation=90)
    copy["args"]["stream"] = 9
    checkpoint = [launch(90, 50, "cudaMemcpyAsync"), copy]
    plain, copied = (read(tmp_path, loop(4) + extra).steps for extra in ([], checkpoint))
    assert plain == copied


def test_device_marker_is_not_a_step(tmp_path: Path) -> None:
    events = [*loop(2), event("gpu_user_annotation", "ProfilerStep#0", 10, 150, 7)]
    assert len(read(tmp_path, events).steps) == 2


def test_kernels_launched_before_the_trace_belong_to_no_step(tmp_path: Path) -> None:
    events = loop(3)
    for entry in events:
        if entry["cat"] == "kernel":
            entry["ts"] += 60
    events += [kernel(3, -20, 50, "earlier"), kernel(4, 30, 40, "earlier")]
    trace = read(tmp_path, events)
    assert trace.steps[0].start_ns == 70_000
    assert len(trace.timeline(0).device) == 5
    assert "earlier" not in trace.timeline(0).names
    assert "launched-before-trace" in codes(trace)


def test_blocked_first_launch_waits_for_unseen_work(tmp_path: Path) -> None:
    events = loop(1)
    for entry in events:
        if entry["cat"] == "kernel":
            entry["ts"] += 5000
    step = read(tmp_path, events).steps[0]
    assert step.start_ns == 5_010_000
    assert step.wall_ns == 150_000


def test_given_windows_delimit_the_steps(tmp_path: Path) -> None:
    path = write(tmp_path, text(loop(4)))
    trace = kineto.read(path, windows=[(100_000, 200_000), (200_000, 400_000)])
    assert trace.steps_from == "given"
    assert [len(trace.timeline(index).device) for index in range(2)] == [5, 10]


def test_optimizer_steps_delimit_steps_without_markers(tmp_path: Path) -> None:
    events = loop(5, markers=False)
    events += [
        event("user_annotation", "Optimizer.step#Adam.step", 100 * n + 92, 6) for n in range(5)
    ]
    trace = read(tmp_path, events)
    assert trace.steps_from == "optimizer"
    assert [len(trace.timeline(index).device) for index in range(5)] == [5] * 5
    assert codes(trace) == ["steps-inferred"]


def test_two_optimizers_form_one_step(tmp_path: Path) -> None:
    events: list[Event] = []
    for turn in range(12):
        for index in range(40 if turn % 2 else 10):
            number = 100 + 50 * turn + index
            events.append(launch(number, 1000.0 * turn + 6 * index))
            events.append(kernel(number, 1000.0 * turn + 6 * index + 8, 4, f"k{index}"))
        events.append(event("user_annotation", "Optimizer.step#Adam.step", 1000 * turn + 500, 50))
    trace = read(tmp_path, events)
    assert len(trace.steps) == 6
    assert {len(trace.timeline(index).device) for index in range(6)} == {50}


def test_unmarked_steps_are_recovered_from_repetition(tmp_path: Path) -> None:
    trace = read(tmp_path, loop(8, markers=False))
    assert trace.steps_from == "launch pattern"
    assert len(trace.steps) == 8
    assert [len(trace.timeline(index).device) for index in range(8)] == [5] * 8
    assert "steps-inferred" in codes(trace)


def test_repeated_layers_inside_one_call_are_not_steps(tmp_path: Path) -> None:
    events = [*loop(8, markers=False), frame("nn.Module: Decoder_0", 0, 900)]
    trace = read(tmp_path, events)
    assert trace.steps_from == "whole window"
    assert len(trace.steps) == 1


def test_trace_without_repetition_is_one_step(tmp_path: Path) -> None:
    events = [op(f"aten::op{index}", 10.0 * index, 5) for index in range(30)]
    trace = read(tmp_path, events)
    assert trace.steps_from == "whole window"
    assert (trace.steps[0].start_ns, trace.steps[0].end_ns) == (0, 295_001)


def test_a_cpu_trace_repeats_its_operators(tmp_path: Path) -> None:
    events = [entry for entry in loop(6, markers=False) if entry["cat"] == "cpu_op"]
    trace = read(tmp_path, events)
    assert (trace.steps_from, len(trace.steps)) == ("launch pattern", 6)
    assert trace.timeline().device_kind == "cpu"


def test_median_step_is_chosen(tmp_path: Path) -> None:
    walls = [500, 100, 120, 110, 900]
    starts = np.cumsum([0, *walls])
    events = [mark(n, float(starts[n]), wall) for n, wall in enumerate(walls)]
    assert read(tmp_path, events).median == 2


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_period_is_found_under_noise(noise: float) -> None:
    generator = np.random.default_rng(1)
    layer = generator.integers(0, 20, 12)
    step = np.concatenate([generator.integers(20, 60, 30), np.tile(layer, 24), [60, 61, 62]])
    tokens = np.tile(step, 7)
    changed = generator.random(len(tokens)) < noise
    tokens[changed] = 63
    found = find_period(tokens)
    assert found is not None
    assert found[1:] == (len(step), 7) or (noise and found[1] == len(step))


def test_no_period_is_found_in_noise() -> None:
    assert find_period(np.random.default_rng(2).integers(0, 50, 5000)) is None
    assert find_period(np.zeros(3, np.int32)) is None


def served(*requests: tuple[int, int]) -> list[Event]:
    """Batches of a serving engine, 100 us apart: how many prompts, how many tokens generated."""
    events: list[Event] = []
    for number, (prompts, tokens) in enumerate(requests):
        start = 100.0 * number
        name = f"execute_context_{prompts}({prompts * 64})_generation_{tokens}({tokens})"
        events.append(event("user_annotation", name, start, 60))
        events.append(op("aten::mm", start + 2, 12))
        events.append(launch(number + 1, start + 4))
        events.append(kernel(number + 1, start + 10, 80.0 if prompts else 20.0))
    return events


def test_batches_of_a_serving_engine_are_steps_of_three_kinds(tmp_path: Path) -> None:
    trace = read(tmp_path, served((1, 0), (0, 4), (0, 4), (0, 4), (2, 3), (0, 4)))
    assert trace.steps_from == "batches"
    labels = ["prefill#0", "decode#0", "decode#1", "decode#2", "mixed#0", "decode#3"]
    assert [step.label for step in trace.steps] == labels
    # Decode takes most of the trace, and is what is diagnosed; the others are named.
    assert trace.series == "decode"
    observation = observe_trace(trace)
    assert observation.step is not None
    assert observation.step.kind.series == "decode"
    assert len(observation.step.samples_ns) == 4
    others = {other.kind: other.steps for other in observation.step.others}
    assert others == {"prefill": 1, "mixed": 1}
    texts = [note.text for note in observation.notes if note.code == "other-steps"]
    assert any("one prefill step" in text and "--index 0" in text for text in texts)
    prefill = observe_trace(trace, index=0).step
    assert prefill is not None and prefill.kind.label == "prefill#0"
    assert {other.kind for other in prefill.others} == {"decode", "mixed"}


def test_batch_marks_with_different_sizes_are_read() -> None:
    assert (
        kind_of_batch("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)") == "mixed"
    )
    assert kind_of_batch("execute_context_0(0)_generation_8(8)") == "decode"
    assert kind_of_batch("execute_graph") is None


def generated(*tokens: int) -> list[Event]:
    """Passes of a language model over these numbers of tokens per sequence, without marks."""
    events: list[Event] = []
    for number, length in enumerate(tokens):
        start = 200.0 * number
        for offset, (table, name) in enumerate(((500, "wte"), (64, "wpe"))):
            shapes: dict[str, Any] = {
                "Input Dims": [[table, 32], [2, length], [], [], []],
                "Input type": ["float", "long int", "Scalar", "", ""],
            }
            events.append(op("aten::embedding", start + 20 * offset, 12, **shapes))
            events.append(launch(10 * number + offset + 1, start + 20 * offset + 4))
            events.append(kernel(10 * number + offset + 1, start + 20 * offset + 10, 8, name))
        events.append(op("aten::mm", start + 50, 20))
        events.append(launch(10 * number + 9, start + 55))
        wide = length > 1
        events.append(kernel(10 * number + 9, start + 70, 100, "gemm" if wide else "gemv"))
    return events


def test_generation_without_marks_is_split_into_prefill_and_decodes(tmp_path: Path) -> None:
    trace = read(tmp_path, generated(7, 1, 1, 1))
    assert trace.steps_from == "passes"
    assert [step.label for step in trace.steps] == [
        "prefill#0",
        "decode#0",
        "decode#1",
        "decode#2",
    ]
    assert [len(trace.timeline(index).device) for index in range(4)] == [3] * 4
    observation = observe_trace(trace)
    assert observation.step is not None
    assert observation.step.kind.series == "decode"
    assert [one.kind for one in observation.step.others] == ["prefill"]


def test_passes_over_several_tokens_are_not_generation(tmp_path: Path) -> None:
    assert read(tmp_path, generated(7, 7, 7, 7)).steps_from != "passes"
    backward = op("autograd::engine::evaluate_function: MmBackward0", 700, 20)
    assert read(tmp_path, [*generated(7, 1, 1, 1), backward]).steps_from != "passes"


def test_profiler_step_markers_take_precedence_over_batch_marks(tmp_path: Path) -> None:
    trace = read(tmp_path, [mark(0, 0, 200), *served((1, 0), (0, 4))])
    assert trace.steps_from == "markers"
    assert "other-steps" not in [note.code for note in observe_trace(trace).notes]


def test_profiler_stop_sync_is_not_part_of_the_step(tmp_path: Path) -> None:
    work = [op("aten::mm", 0, 30), launch(1, 5), kernel(1, 20, 400)]
    stop = event("cuda_runtime", "cudaDeviceSynchronize", 50, 380)
    timeline = read(tmp_path, [*work, stop]).timeline()
    assert HostKind.SYNC not in timeline.host.kind
    assert len(timeline.device) == 1 and timeline.wall_ns == 420_000
    # One that the script goes on after is the script's.
    timeline = read(tmp_path, [*work, stop, op("aten::relu", 440, 10)]).timeline()
    assert HostKind.SYNC in timeline.host.kind
