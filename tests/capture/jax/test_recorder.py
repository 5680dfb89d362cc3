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
