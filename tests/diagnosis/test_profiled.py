"""The step without the profiler, and the verdict over the interval of its time."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.capture import kineto
from boundby.capture.kineto.source import observe_trace
from boundby.diagnosis import diagnose
from boundby.diagnosis.profiled import estimate_unprofiled, verdict_over_range
from boundby.model import Machine, Timeline
from boundby.model.account import GroupName, Verdict
from tests.capture.kineto_events import (
    DATA,
    SHARED,
    Event,
    frame,
    kernel,
    launch,
    mark,
    op,
    text,
    write,
)

MACHINE = Machine(device="unknown device", kind="cuda")


def _timeline(folder: Path, events: list[Event]) -> Timeline:
    return kineto.read(write(folder, text(events))).timeline()


def _launching(count: int, *, start: float = 0.0, python: int = 8) -> list[Event]:
    """Operators that take 100 us each with the calls around them, and short kernels."""
    events: list[Event] = []
    for number in range(count):
        ts = start + 100 * number
        events += [frame(f"lib.py({i}): call", ts + i, 90 - 2 * i) for i in range(python)]
        events += [op("aten::add", ts + 20, 50), op("aten::empty", ts + 25, 5)]
        events += [launch(number + 1, ts + 40), kernel(number + 1, ts + 60, 5)]
    return events


def test_host_with_many_events_is_faster_without_the_profiler(tmp_path: Path) -> None:
    timeline = _timeline(tmp_path, [mark(0, 0, 10_000), *_launching(100)])
    wall = estimate_unprofiled(timeline, MACHINE).wall_ns
    assert wall.low < wall.expected < wall.high <= 10_000_000
    # Of each 100 us, 8 calls at 2.2 and 2 operators at 3.3 are the profiler's at its usual cost: 76
    # are left. A host takes 25 for a launch: the geometric mean is 44.
    assert wall.expected == pytest.approx(4_400_000, rel=0.1)


def test_waiting_for_data_is_not_profiler_overhead(tmp_path: Path) -> None:
    loader = frame("torch/utils/data/dataloader.py(630): __next__", 0, 30_000)
    events = [mark(0, 0, 40_000), loader, *_launching(100, start=30_000)]
    wall = estimate_unprofiled(_timeline(tmp_path, events), MACHINE).wall_ns
    assert wall.low > 30_000_000


def test_time_without_events_is_not_profiler_overhead(tmp_path: Path) -> None:
    events = [mark(0, 0, 40_000), frame("app.py(3): preprocess", 0, 29_000)]
    wall = estimate_unprofiled(
        _timeline(tmp_path, [*events, *_launching(100, start=30_000)]), MACHINE
    ).wall_ns
    assert wall.low > 29_000_000


@pytest.mark.parametrize(
    ("trace", "clean_ms"),
    [
        ("bad_mlp_syncs", 14.6),
        ("bert_base_b1_overhead", 52.2),
        ("bert_large_bf16_eager", 84.2),
        ("bert_large_bf16_compiled", 71.6),
        ("gpt2xl_decode", 187.0),
    ],
)
def test_interval_contains_the_clean_step(trace: str, clean_ms: float) -> None:
    paths = [folder / f"{trace}.json.gz" for folder in (DATA, SHARED / "h200")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        pytest.skip("the shared traces are not here")
    wall = estimate_unprofiled(kineto.read(path).timeline(), MACHINE).wall_ns
    assert wall.low <= clean_ms * 1e6 <= wall.high
    assert wall.expected == pytest.approx(clean_ms * 1e6, rel=0.5)


@pytest.mark.parametrize(
    ("low", "high", "other"),
    [
        ("overhead", "overhead", None),
        ("bandwidth", "overhead", "bandwidth"),
        ("overhead", "compute", "compute"),
        ("unknown", "overhead", None),
    ],
)
def test_verdict_names_both_groups_if_ends_differ(
    low: GroupName, high: GroupName, other: GroupName | None
) -> None:
    found = verdict_over_range(
        Verdict(bound_by="overhead", why="Why."), Verdict(bound_by=low), Verdict(bound_by=high)
    )
    assert found.bound_by == "overhead"
    assert found.or_bound_by == other
    assert found.uncertain == (other is not None)
    assert ("--wall" in found.why) == (other is not None)


def test_launches_without_device_events_have_no_verdict(tmp_path: Path) -> None:
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
    events = [event for event in _launching(30) if event["cat"] != "kernel"]
    path = write(tmp_path, text([mark(0, 0, 3000), *events], deviceProperties=[device]))
    diagnosis = boundby.load(path)
    assert diagnosis.verdict.bound_by == "unknown"
    assert diagnosis.machine.chip is None
    assert "device-not-recorded" in [note.code for note in diagnosis.notes]


def test_truncated_file_is_stated_in_verdict(tmp_path: Path) -> None:
    whole = text([mark(0, 0, 10_000), *_launching(100)])
    diagnosis = boundby.load(write(tmp_path, whole[: len(whole) * 2 // 3]))
    assert diagnosis.verdict.uncertain
    assert diagnosis.verdict.why.startswith("The file is cut short")


def test_overhead_of_a_trace_without_repeated_steps_may_be_start_up(tmp_path: Path) -> None:
    marked = [mark(0, 0, 10_000), *_launching(3)]
    whole = [op("aten::randn", 0, 9_000), *_launching(3, start=9_000)]
    found, doubted = (
        diagnose(observe_trace(kineto.read(write(tmp_path, text(events)))))
        for events in (marked, whole)
    )
    assert found.verdict.bound_by == doubted.verdict.bound_by == "overhead"
    assert "no-repeated-step" in [note.code for note in doubted.notes]
    assert doubted.verdict.uncertain and "first step" in doubted.verdict.why
    assert "first step" not in found.verdict.why
