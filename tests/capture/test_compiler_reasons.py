"""What the compiler says of graph breaks and recompilations, with lines of the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boundby.capture.host.compiler import (
    compiled_again,
    gave_up,
    graph_break_lines,
    graph_breaks,
)

LIBRARY = "/somewhere/site-packages/transformers/models/bert/modeling_bert.py"


def frame(file: str, line: int) -> SimpleNamespace:
    return SimpleNamespace(filename=file, lineno=line, name="forward")


def metrics(file: str | None, name: str, reason: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        co_filename=file, co_name=name, co_firstlineno=7, recompile_reason=reason, fail_type=None
    )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    fake = SimpleNamespace(counters={}, graph_break_reasons=[], get_compilation_metrics=list)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", fake)
    monkeypatch.syspath_prepend(str(tmp_path))
    fake.script = str(tmp_path / "train.py")
    yield fake


def test_graph_break_is_at_the_innermost_user_line(compiler: Any) -> None:
    stack = [frame(compiler.script, 12), frame(LIBRARY, 40)]
    one = SimpleNamespace(
        reason="Unsupported Tensor.item() call\n  Explanation: ...", user_stack=stack
    )
    compiler.graph_break_reasons = [one, one]
    ((line, reason),) = graph_break_lines()
    assert line.endswith("train.py:12") and reason == "Unsupported Tensor.item() call"


def test_recompiled_function_has_its_last_failed_guard(compiler: Any) -> None:
    size = "0/1: tensor 'x' size mismatch at index 0. expected 5, actual 6"
    seen = [
        metrics(compiler.script, "forward"),
        metrics(compiler.script, "forward", size),
        metrics(compiler.script, "torch_dynamo_resume_in_forward_at_9", size),
        metrics(None, "", size),
    ]
    compiler.get_compilation_metrics = lambda: seen
    (again,) = compiled_again()
    assert again.where.endswith("train.py:7") and (again.times, again.reason) == (2, size)
    compiler.get_compilation_metrics = lambda: seen[:1]
    assert compiled_again() == ()


def test_recompilation_limit_is_read_from_the_counters(compiler: Any) -> None:
    assert not gave_up()
    compiler.counters = {"unimplemented": {"Dynamo recompile limit exceeded\n  Hint": 1}}
    assert gave_up()
    assert graph_breaks() == ("Dynamo recompile limit exceeded",)


def test_function_that_failed_to_compile_is_reported_at_its_line(compiler: Any) -> None:
    failed = metrics(compiler.script, "forward")
    failed.fail_type, failed.fail_reason = "Unsupported", "Unsupported Tensor.item() call\n  Hint"
    failed.fail_user_frame_filename, failed.fail_user_frame_lineno = compiler.script, 9
    compiler.get_compilation_metrics = lambda: [failed]
    assert gave_up()
    ((line, reason),) = graph_break_lines()
    assert line.endswith("train.py:9") and reason == "Unsupported Tensor.item() call"


def test_without_compiler_reasons_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert (graph_breaks(), graph_break_lines(), compiled_again(), gave_up()) == ((), (), (), False)
