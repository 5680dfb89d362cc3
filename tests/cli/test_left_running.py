"""Threads and processes that wait for a script which boundby ended do not keep it for ever."""

import atexit
import multiprocessing
import os
import sys
import threading
import time

import pytest

from boundby.cli import left_running


class Left(Exception):  # noqa: N818 - stands for the end of the process
    pass


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses made; nothing ends in them."""
    pauses: list[float] = []

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: pauses.append(0.0))
    return pauses


def test_a_thread_that_never_ends_is_named_and_ended(
    waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    never = threading.Event()
    producer = threading.Thread(target=never.wait, name="producer")
    producer.start()
    try:
        with pytest.raises(Left, match="7"):
            left_running._end(7, sys.stderr)
    finally:
        never.set()
        producer.join()
    assert "still running (producer)" in capsys.readouterr().err
    assert waits[-1] == 0.0  # the script's exit handlers ran


def test_a_process_that_never_ends_is_ended(
    waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("spawn")
    actor = context.Process(target=context.Event().wait, name="actor")
    actor.start()
    left_running._end(0, sys.stderr)  # the process itself ends by itself then
    actor.join()
    assert actor.exitcode
    assert "still running (actor)" in capsys.readouterr().err


def test_nothing_is_said_if_everything_has_ended(
    waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    left_running._end(0, sys.stderr)
    assert len(waits) == 1
    assert not capsys.readouterr().err
