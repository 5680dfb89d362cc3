"""Progress is shown on stderr where a person reads it, and nowhere else."""

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from boundby.model import progress
from boundby.report.progress import progress_bar
from tests.fork_server import HANG_S

MEASURE = """
import boundby
from boundby import hardware as roofs
def obtain(*args, progress, **kwargs):
    progress("memory", 0.5)
    return "roofs"
roofs.obtain = obtain
print(boundby.machine())
"""


def test_no_progress_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar("measuring") as advance:
        advance("memory", 0.5)
    assert capfd.readouterr() == ("", "")


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("boundby.report.progress.time", clock)
    with progress_bar("measuring") as advance:
        for now[0] in range(13):
            advance(f"block {now[0]}", 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[3] for line in lines] == ["3", "9"]


def test_notebook_gets_one_line_at_the_first_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with progress_bar("measuring") as advance:
        assert capsys.readouterr().err == ""
        advance("memory", 0.1)
        advance("products", 0.5)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "boundby: measuring ... this takes some seconds\n")
    with progress_bar("measuring", shown=False) as advance:
        advance("memory", 0.1)
    assert capsys.readouterr().err == ""


def test_progress_without_a_display_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "progress_displays", [])
    with progress.show_progress("measuring") as advance:
        advance("memory", 0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_bar_uses_stderr_and_keeps_stdout_clean() -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", MEASURE], stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    out, _ = done.communicate(timeout=HANG_S)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert out == "roofs\n"
    assert "measuring memory" in shown
