"""The recorder's events for the account of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.profiler import JaxProfiler
from boundby.capture.jax.recorder import JaxRecorder
from boundby.capture.process.plan import Plan
from boundby.capture.process.run_clock import RunClock

jax = pytest.importorskip("jax")
jnp = jax.numpy

START_NS = 10**15  # longer than any run


class _Clock:
    """A clock that stands still but while the profiler starts."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_profiler_start_is_excluded_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()

    def start(_: Any) -> bool:
        clock.ns += START_NS
        return False

    monkeypatch.setattr(JaxProfiler, "start", start)
    monkeypatch.setattr("time.perf_counter_ns", clock)
    run = RunClock(clock)
    hooks = JaxHooks()
    hooks.install(jax)
    try:
        step = jax.jit(lambda state, x: (state + x, x.sum()))
        hooks.watcher = recorder = JaxRecorder(
            jax,
            plan=Plan(warmup=4, clean=4, issue=0, profiled=1),
            by_marks=False,
            folder=tmp_path,
            on_done=lambda: None,
            hooks=hooks,
            run=run,
        )
        state, x = jnp.zeros(4), jnp.ones(4)
        for _ in range(40):
            clock.ns += 1000
            state, _loss = step(state, x)
    finally:
        hooks.remove()
    assert clock.ns > START_NS
    parts = run.parts(recorder.windows.main_kind, is_cut=False)
    assert parts.wall_ns < START_NS


def test_calls_before_the_first_update_are_not_steps(tmp_path: Path) -> None:
    """A policy is called many times before the function that trains it is called at all."""
    hooks = JaxHooks()
    hooks.install(jax)
    try:
        act = jax.jit(lambda weights, x: weights @ x)
        learn = jax.jit(
            lambda weights, x: weights - 0.1 * jax.grad(lambda w: (w @ x).sum())(weights)
        )
        hooks.watcher = recorder = JaxRecorder(
            jax,
            plan=Plan(clean=4, issue=0, profiled=0),
            by_marks=False,
            folder=tmp_path,
            on_done=lambda: None,
            hooks=hooks,
        )
        weights, x = jnp.ones((4, 4)), jnp.ones(4)
        for _ in range(20):
            for _ in range(40):
                act(weights, x)
            weights = learn(weights, x)
        found = recorder.capture()
    finally:
        hooks.remove()
    assert found.main_kind is not None and found.main_kind.startswith("train")
    assert found.anchor is not None and found.anchor.compiled is not None
    assert found.anchor.traced_gradient


def test_inference_script_is_measured_without_delay(tmp_path: Path) -> None:
    hooks = JaxHooks()
    hooks.install(jax)
    try:
        act = jax.jit(lambda weights, x: weights @ x)
        hooks.watcher = recorder = JaxRecorder(
            jax,
            plan=Plan(clean=4, issue=0, profiled=0),
            by_marks=False,
            folder=tmp_path,
            on_done=lambda: None,
            hooks=hooks,
        )
        weights, x = jnp.ones((4, 4)), jnp.ones(4)
        for _ in range(60):
            act(weights, x)
        found = recorder.capture()
    finally:
        hooks.remove()
    assert found.clean
