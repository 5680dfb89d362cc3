"""Loops of Python in the programs of a profile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boundby.capture.xplane.repeated_code import repeated_code
from boundby.capture.xplane.trace import read
from boundby.model.observation import RepeatedCode

jax = pytest.importorskip("jax")
jnp = jax.numpy

TURNS = 10


def samples(w: Any, xs: Any) -> Any:
    total = jnp.zeros(())
    for turn in range(TURNS):
        total = total + jnp.tanh(xs[turn] @ w).sum()
    return total


def chain(w: Any, xs: Any) -> Any:
    x = xs[0]
    for _ in range(TURNS):
        x = jnp.tanh(x @ w)
    return x.sum()


def update(weights: Any, gradients: Any) -> Any:
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def adam(weights: Any, moments: Any, gradients: Any, count: Any) -> Any:
    moments = [0.9 * m + 0.1 * g**2 for m, g in zip(moments, gradients, strict=True)]
    rate = 1 - 0.9**count
    made = [w - g * rate for w, g in zip(weights, gradients, strict=True)]
    return [w / jnp.sqrt(m) for w, m in zip(made, moments, strict=True)], moments


def time_loop(w: Any, xs: Any) -> Any:
    def turn(state: Any, x: Any) -> Any:
        parts = [jnp.tanh(x @ w + part) for part in state]
        return parts, parts

    start = [jnp.zeros((40, 48)) for _ in range(TURNS)]
    return jax.grad(lambda w: sum(p.sum() for p in jax.lax.scan(turn, start, xs @ w)[1]))(w)


def attention(ws: Any, x: Any) -> Any:
    for w in ws:
        q, k, v, o = (x @ part for part in w)
        x = x + jnp.tanh(q * k + v * o)
    return x.sum()


def _loops(function: Callable[..., Any], *args: Any, folder: Path) -> list[RepeatedCode]:
    step = jax.jit(function)
    jax.block_until_ready(step(*args))
    jax.profiler.start_trace(str(folder))
    jax.block_until_ready(step(*args))
    jax.profiler.stop_trace()
    (path,) = folder.rglob("*.xplane.pb")
    trace = read(path)
    return [one for module in trace.modules() for one in repeated_code(module)]


def _line(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def test_loop_over_samples_reads_the_same_weights(tmp_path: Path) -> None:
    w, xs = jnp.ones((48, 48)), jnp.ones((TURNS, 40, 48))
    (loop,) = _loops(samples, w, xs, folder=tmp_path)
    assert not loop.depends
    assert loop.count == TURNS
    assert loop.line.endswith(f":{_line(samples, '@')}")


def test_loop_over_layers_chains_its_results(tmp_path: Path) -> None:
    w, xs = jnp.ones((48, 48)), jnp.ones((TURNS, 40, 48))
    loops = _loops(chain, w, xs, folder=tmp_path)
    assert [(one.depends, one.line.rpartition(":")[2]) for one in loops] == [
        (True, str(_line(chain, "@")))
    ]


def test_updates_of_equal_parameters_are_not_a_loop(tmp_path: Path) -> None:
    weights = [jnp.ones((48, 48)) for _ in range(TURNS)]
    assert _loops(update, weights, weights, folder=tmp_path) == []


def test_adam_updates_of_equal_parameters_are_not_a_loop(tmp_path: Path) -> None:
    arrays = [[jnp.ones((48, 48)) for _ in range(TURNS)] for _ in range(3)]
    assert _loops(adam, *arrays, jnp.asarray(3), folder=tmp_path) == []


def test_scan_states_are_not_a_loop(tmp_path: Path) -> None:
    w, xs = jnp.ones((48, 48)), jnp.ones((TURNS, 40, 48))
    assert _loops(time_loop, w, xs, folder=tmp_path) == []


def test_parallel_matmuls_of_few_layers_are_not_a_loop(tmp_path: Path) -> None:
    ws = jnp.ones((3, 4, 48, 48))
    assert _loops(attention, ws, jnp.ones((40, 48)), folder=tmp_path) == []
