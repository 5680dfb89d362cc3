"""The observer's own rows and the marks at which phases begin: recognised once, by the reader."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundby.capture import kineto
from boundby.capture.marks import marked_phase, phase_mark
from boundby.capture.process.plan import Plan
from boundby.model import HostKind, Phase, Timeline
from boundby.step.host_intervals import find_host_intervals
from boundby.step.profiler_overhead import find_profiler_overhead
from tests.capture.kineto_events import event, frame, mark, op, text

OWN = "boundby/capture/torch/hooks.py(7): _watch_call"


def read(folder: Path, *events: dict[str, Any]) -> Timeline:
    path = folder / "trace.json"
    path.write_text(text([mark(0, 0, 100), *events]))
    return kineto.read(path).timeline()


def kinds(timeline: Timeline) -> dict[str, HostKind]:
    host = timeline.host
    return {
        timeline.names[name]: HostKind(kind)
        for name, kind in zip(host.name.tolist(), host.kind.tolist(), strict=True)
    }


def test_boundby_functions_are_observer_rows(tmp_path: Path) -> None:
    found = kinds(
        read(
            tmp_path, frame(OWN, 1, 50), frame("boundby/train.py(3): step", 2, 40), op("mul", 3, 9)
        )
    )
    assert found[OWN] is HostKind.OBSERVER
    assert found["boundby/train.py(3): step"] is HostKind.PYTHON
    assert found["mul"] is HostKind.OP


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_marks_become_phases_and_are_removed(tmp_path: Path, category: str) -> None:
    marks = [("backward", 60), ("forward", 10), ("optimizer", 80)]
    timeline = read(
        tmp_path,
        *(event(category, phase_mark(name), at, 0.5) for name, at in marks),
        op("mul", 3, 9),
    )
    assert timeline.phases is not None
    assert timeline.phases.start_ns.tolist() == [10_000, 60_000, 80_000]
    assert timeline.phases.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    assert not [name for name in timeline.names if marked_phase(name)]


def test_a_trace_without_marks_has_no_phases(tmp_path: Path) -> None:
    assert read(tmp_path, op("mul", 3, 9)).phases is None


def test_marks_of_other_steps_are_ignored(tmp_path: Path) -> None:
    later = [mark(1, 100, 100), event("cpu_op", phase_mark("forward"), 150, 1)]
    path = tmp_path / "trace.json"
    path.write_text(text([mark(0, 0, 100), op("mul", 3, 9), op("mul", 103, 9), *later]))
    trace = kineto.read(path)
    assert trace.timeline(0).phases is None
    assert trace.timeline(1).phases is not None


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real profile of a training loop under watch."""
    torch = pytest.importorskip("torch")
    from boundby.capture.torch.hooks import Hooks
    from boundby.capture.torch.recorder import Recorder

    folder = tmp_path_factory.mktemp("profile")
    hooks = Hooks()
    hooks.install(torch)
    done: list[bool] = []
    hooks.watcher = recorder = Recorder(
        torch,
        plan=Plan(warmup=2, clean=3, issue=2, profiled=2),
        step_by="auto",
        folder=folder,
        on_done=lambda: done.append(True),
    )
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while not done:
        loss = model(torch.ones(2, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = recorder.capture().trace
    hooks.remove()
    assert path is not None
    yield path


def phases(timeline: Timeline) -> list[Phase]:
    assert timeline.phases is not None
    return [Phase(phase) for phase in timeline.phases.phase.tolist()]


IN_ORDER = [Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.OPTIMIZER, Phase.OTHER]


def test_a_live_profile_carries_a_mark_where_each_phase_begins(profile: Path) -> None:
    timeline = kineto.read(profile).timeline()
    assert phases(timeline) == IN_ORDER
    assert (timeline.host.kind == HostKind.OBSERVER).any()


def test_renamed_observer_methods_do_not_change_the_account(profile: Path, tmp_path: Path) -> None:
    content = json.loads(profile.read_text())
    for row in content["traceEvents"]:
        name = row.get("name", "")
        if name.startswith("boundby/"):
            row["name"] = name.partition(": ")[0] + ": renamed"
    renamed = tmp_path / "renamed.json"
    renamed.write_text(json.dumps(content))

    def cost(path: Path) -> list[float]:
        timeline = kineto.read(path).timeline()
        assert phases(timeline) == IN_ORDER
        clean = {"forward": 1e3, "backward": 2e3, "optimizer": 3e3, "other": 4e3}
        found = find_profiler_overhead(
            timeline, find_host_intervals(timeline), wall_ns=timeline.wall_ns / 2, phases=clean
        )
        return sorted(np.round(found.event_ns, 6).tolist())

    assert cost(renamed) == cost(profile)
