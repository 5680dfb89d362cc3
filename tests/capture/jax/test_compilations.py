"""The compile time of a script: what jax reports, nested reports counted once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boundby.capture.jax import compat
from boundby.capture.jax.compilations import Compilations
from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.recorder import JaxRecorder
from boundby.capture.process.plan import Plan
from boundby.capture.process.run_clock import RunClock

jax = pytest.importorskip("jax")
jnp = jax.numpy

TRACE = "/jax/core/compile/jaxpr_trace_duration"
BACKEND = "/jax/core/compile/backend_compile_duration"


def test_time_inside_another_report_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("time.perf_counter_ns", lambda: now)
    found: list[Any] = []

    def on_compile(_: Any, told: Any) -> Callable[[], None]:
        found.append(told)
        return lambda: None

    monkeypatch.setattr(compat, "on_compile", on_compile)
    seen = Compilations(jax, JaxHooks(), lambda: 0)
    for at_s, event, seconds in (
        (3, TRACE, 1.0),  # an inner function, traced inside the outer one
        (5, TRACE, 4.0),
        (9, BACKEND, 4.0),
    ):
        now = at_s * 10**9
        found[0](event, seconds, "step")
    assert seen.spent_ns == pytest.approx(8e9)
    assert [one.ns for one in seen.compilations] == [4e9]


def test_compile_time_is_part_of_the_account_of_the_run(tmp_path: Path) -> None:
    run, hooks = RunClock(), JaxHooks()
    hooks.install(jax)
    try:
        step = jax.jit(lambda state, x: (state + x, x.sum()))
        hooks.watcher = recorder = JaxRecorder(
            jax,
            plan=Plan(warmup=4, clean=4, issue=0, profiled=0),
            by_marks=False,
            folder=tmp_path,
            on_done=lambda: None,
            hooks=hooks,
            run=run,
        )
        state, x = jnp.zeros(4), jnp.ones(4)
        for _ in range(12):
            state, _loss = step(state, x)
        recorder.capture()
    finally:
        hooks.remove()
    parts = run.parts(recorder.windows.main_kind, is_cut=False)
    compiled = {part.name: part.ns for part in parts.parts}["compile"]
    assert 0 < compiled <= parts.wall_ns


def test_a_compilation_is_at_the_line_that_calls_the_function() -> None:
    hooks = JaxHooks()
    hooks.install(jax)
    seen = Compilations(jax, hooks, lambda: 0)
    try:
        jax.jit(lambda x: x * 3 + 5)(jnp.ones(7))
    finally:
        seen.close()
        hooks.remove()
    (one,) = [one for one in seen.compilations if "lambda" in one.function]
    assert one.place is not None
    assert one.place[0] == __file__


def test_a_loop_whose_body_is_defined_again_is_a_new_function() -> None:
    hooks = JaxHooks()
    hooks.install(jax)

    class Quiet:
        def calls(self, *_: Any) -> None:
            return None

    hooks.watcher = Quiet()
    seen = Compilations(jax, hooks, lambda: 0)

    def body(total: Any, x: Any) -> Any:
        return total + x, x

    try:
        for xs in (jnp.ones(7), jnp.ones(8)):
            jax.lax.scan(body, 0.0, xs)
        for _ in range(2):
            jax.lax.scan(lambda total, x: (total - x, x), 0.0, jnp.ones(9))
    finally:
        seen.close()
        hooks.remove()
    why = [one.why for one in seen.compilations if "scan" in one.function]
    assert [one is not None and one.is_new for one in why] == [False, False, False, True]
