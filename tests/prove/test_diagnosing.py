"""What `prove` says of a script whose run gave no diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.model import run_failure
from boundby.model.run_failure import RunFailure
from boundby.prove.diagnosing import _failure_reason

ERRORS = "Traceback (most recent call last):\nValueError: no data\n"


def test_error_of_a_failed_script_is_quoted() -> None:
    failure = RunFailure(reason="the script ended with exit code 1", by_script=True)
    expected = "the script ended with exit code 1; its last line: ValueError: no data"
    assert _failure_reason(failure, ERRORS, 1) == expected


def test_failure_without_a_script_error_is_reported_alone() -> None:
    assert _failure_reason(RunFailure(reason="no step was found"), ERRORS, 2) == "no step was found"


def test_killed_run_reports_signal_and_last_line() -> None:
    killed = "the script's process, while it was diagnosed, was ended by SIGKILL: out of memory?"
    expected = f"{killed}; its last line: ValueError: no data"
    assert _failure_reason(None, ERRORS, -9) == expected
    assert "SIGSEGV" in _failure_reason(None, "", -11)
    assert _failure_reason(None, "", 0) == "the script's process gave no diagnosis"


def test_failure_is_written_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, path = RunFailure(reason="no step was found"), tmp_path / "failure.json"
    assert not run_failure.is_written(failure)
    assert run_failure.read(path) is None
    for name, value in run_failure.write_to(path).items():
        monkeypatch.setenv(name, value)
    assert run_failure.is_written(failure)
    assert run_failure.read(path) == failure
