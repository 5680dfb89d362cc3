"""Errors of boundby inside a script: the script's call continues, and observation ends."""

import contextlib
import functools
import gc
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.process.guard import Guard, failure_of  # noqa: E402
from boundby.capture.process.plan import Plan  # noqa: E402
from boundby.capture.process.windows import Window  # noqa: E402
from boundby.capture.torch.hooks import Hooks  # noqa: E402
from boundby.capture.torch.recorder import Recorder  # noqa: E402


class Clumsy:
    """A watcher that fails in one of its parts."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., None]:
        def told(*_: object) -> None:
            if name == self._part:
                raise IndexError(name)

        return told


class Graph:
    def __init__(self) -> None:
        self.replayed = 0

    def replay(self) -> str:
        self.replayed += 1
        return "replayed"


@pytest.fixture
def failed() -> list[Exception]:
    return []


@pytest.fixture
def hooks(failed: list[Exception]) -> Iterator[Hooks]:
    made = Hooks(Guard(failed.append))
    made.install(torch)
    yield made
    made.remove()


@pytest.mark.parametrize(
    "part",
    [
        "call_begins",
        "backward_begins",
        "backward_ends",
        "optimizer_made",
        "optimizer_begins",
        "optimizer_ends",
    ],
)
def test_step_runs_despite_observer_failure(
    hooks: Hooks, failed: list[Exception], part: str
) -> None:
    hooks.watcher = Clumsy(part)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight)
    assert [str(error) for error in failed] == [part]
    assert not hooks._depth


def test_graph_is_replayed_despite_observer_failure(hooks: Hooks, failed: list[Exception]) -> None:
    replay = hooks._around_replay(Graph.replay)
    graph = Graph()
    hooks.watcher = Clumsy("call_begins")
    assert replay(graph) == "replayed"
    assert graph.replayed == 1 and len(failed) == 1


def test_exception_of_script_is_not_caught(hooks: Hooks, failed: list[Exception]) -> None:
    hooks.watcher = Clumsy("nothing")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.nn.Linear(4, 1)(torch.ones(2, 3))
    assert not failed


def test_system_exit_passes_through_the_guard(failed: list[Exception]) -> None:
    def end() -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        Guard(failed.append).do(end)
    assert not failed


def test_guard_without_handler_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        Guard().do(lambda: 1 / 0)


def test_failed_call_returns_the_substitute(failed: list[Exception]) -> None:
    assert Guard(failed.append).do(lambda: 1 / 0, otherwise="plain") == "plain"
    assert Guard(failed.append).do(lambda: "ours", otherwise="plain") == "ours"
    assert len(failed) == 1


def test_error_in_an_enum_is_not_taken_for_a_signal_handler(failed: list[Exception]) -> None:
    """Default signal handlers are members of an enum, whose own errors are not a handler's."""
    Guard(failed.append).do(lambda: Window("no such window"))
    assert len(failed) == 1


class _Timeout(Exception):  # noqa: N818 - a script names its own as it likes
    pass


class _Handler:
    def handle(self, *_: object) -> None:
        raise _Timeout

    def __call__(self, *_: object) -> None:
        raise _Timeout


def _time_out(*_: object) -> None:
    raise _Timeout


@pytest.mark.parametrize(
    "handler", [_time_out, _Handler().handle, _Handler(), functools.partial(_time_out, 1)]
)
def test_exception_of_a_script_signal_handler_passes(handler: Any, failed: list[Exception]) -> None:
    """A timeout may strike inside boundby's code: the exception is the script's."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(_Timeout):
            Guard(failed.append).do(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not failed


def test_failure_to_report_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise OSError("stderr is closed")

    with caplog.at_level(logging.ERROR, "boundby"):
        Guard(fail).do(lambda: 1 / 0)
    assert "stderr is closed" in caplog.text and "ZeroDivisionError" in caplog.text


def test_failure_is_one_line_and_a_traceback_file(tmp_path: Path) -> None:
    failed: list[Exception] = []
    Guard(failed.append).do(lambda: [][1])
    Guard(failed.append).do(lambda: 1 / 0)
    failure = failure_of("watching failed", failed)
    assert failure.line == "watching failed: IndexError: list index out of range"
    path = failure.keep(tmp_path / "out")
    assert path is not None
    assert "test_live_guard.py" in path.read_text() and "ZeroDivisionError" in path.read_text()
    # A second failure is appended.
    failure_of("again", [ValueError("odd \udcff")]).keep(tmp_path / "out")
    assert path.read_text().count("boundby ") == 2
    (tmp_path / "file").touch()
    assert failure.keep(tmp_path / "file") is None
    assert failure_of("x", [ValueError()]).line == "x: ValueError"


@pytest.mark.parametrize("window", [Window.CLEAN, Window.ISSUE, Window.PROFILED])
def test_giving_up_removes_all_hooks(tmp_path: Path, window: Window) -> None:
    matmul, prepare = torch.Tensor.__matmul__, torch.autograd.profiler._prepare_profiler
    callbacks = list(gc.callbacks)
    recorder = Recorder(
        torch,
        plan=Plan(warmup=2, clean=3, issue=2, profiled=3),
        step_by="mark",
        folder=tmp_path,
        on_done=lambda: None,
    )
    while recorder.windows.window is not window:
        torch.ones(3).exp()
        recorder.mark()
    assert recorder.give_up(count_on=False) == []
    assert recorder.windows.window is Window.DONE
    assert not torch.autograd._profiler_enabled()
    assert gc.callbacks == callbacks
    assert torch.Tensor.__matmul__ is matmul
    assert torch.autograd.profiler._prepare_profiler is prepare
    assert len(recorder.capture().clean.get("step", [])) == (3 if window is Window.PROFILED else 0)


def test_giving_up_continues_when_a_cleanup_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = list(gc.callbacks)
    recorder = Recorder(
        torch, plan=Plan(warmup=2, issue=0), step_by="mark", folder=tmp_path, on_done=lambda: None
    )
    for _ in range(4):
        recorder.mark()
    monkeypatch.setattr(recorder.windows, "_device", None)
    (error,) = recorder.give_up(count_on=False)
    assert isinstance(error, AttributeError)
    assert gc.callbacks == callbacks


def test_failed_rank_still_ends_after_the_same_number_of_steps(tmp_path: Path) -> None:
    plan = Plan(warmup=3, clean=4, issue=2, profiled=2, in_step=True)
    taken = []
    for fails_after in (None, 2, 5, 8, 10):
        done: list[int] = []
        recorder = Recorder(
            torch,
            plan=plan,
            step_by="mark",
            folder=tmp_path,
            on_done=functools.partial(done.append, 1),
        )
        steps = 0
        while not done:
            recorder.mark()
            steps += 1
            if steps == fails_after:
                recorder.give_up(count_on=True)
        taken.append(steps)
        with contextlib.suppress(OSError):
            (tmp_path / "trace.json").unlink()
    assert taken == [plan.total] * 5
