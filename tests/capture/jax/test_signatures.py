"""Why functions are compiled again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.recorder import JaxRecorder
from boundby.capture.jax.signatures import Explanation
from boundby.capture.process.plan import Plan

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[JaxRecorder]:
    hooks = JaxHooks()
    hooks.install(jax)
    hooks.watcher = made = JaxRecorder(
        jax,
        plan=Plan(warmup=4, clean=4, issue=0, profiled=0),
        by_marks=False,
        folder=tmp_path,
        on_done=lambda: None,
        hooks=hooks,
    )
    yield made
    hooks.watcher = None
    hooks.remove()
    made.capture()


def _reasons(recorder: JaxRecorder, name: str) -> list[Explanation | None]:
    seen = recorder.capture().compilations
    return [one.why for one in seen if one.function in (name, f"jit({name})")]


def _changes(recorder: JaxRecorder, name: str) -> list[tuple[str, str, str, str]]:
    return [
        (change.argument, change.what, change.before, change.after)
        for why in _reasons(recorder, name)
        if why is not None
        for change in why.changes
    ]


def test_changed_shape_is_reported_with_the_previous_one(recorder: JaxRecorder) -> None:
    @jax.jit
    def shaped(params: Any, x: Any) -> Any:
        return params["w"] * x.sum()

    for length in (3, 4, 4, 5):
        shaped({"w": jnp.ones(2)}, jnp.ones((2, length)))
    assert _changes(recorder, "shaped") == [
        ("x", "shape", "float32[2,3]", "float32[2,4]"),
        ("x", "shape", "float32[2,4]", "float32[2,5]"),
    ]


def test_changed_static_value_is_reported(recorder: JaxRecorder) -> None:
    def scaled(x: Any, *, by: float) -> Any:
        return x * by

    step = jax.jit(scaled, static_argnames="by")
    for by in (1.0, 2.0):
        step(jnp.ones(3), by=by)
    assert _changes(recorder, "scaled") == [("by", "value", "1.0", "2.0")]


def test_python_number_in_place_of_an_array_is_a_changed_dtype(recorder: JaxRecorder) -> None:
    @jax.jit
    def weak(x: Any, rate: Any) -> Any:
        return x * rate

    weak(jnp.ones(3), jnp.float32(0.5))
    weak(jnp.ones(3), 0.5)
    ((argument, what, _, after),) = _changes(recorder, "weak")
    assert (argument, what) == ("rate", "dtype")
    assert "Python number" in after


def test_function_created_in_the_loop_is_reported_as_new(recorder: JaxRecorder) -> None:
    for at in range(3):
        jax.jit(lambda x, at=at: x * at)(jnp.ones(3))
    assert _reasons(recorder, "<lambda>") == [None, *[Explanation(is_new=True)] * 2]


def test_random_keys_in_results_are_accepted(recorder: JaxRecorder) -> None:
    @jax.jit
    def draw(state: Any, key: Any) -> Any:
        key, mine = jax.random.split(key)
        return state + jax.random.normal(mine, state.shape), key

    state, key = jnp.zeros(3), jax.random.key(0)
    for _ in range(12):
        state, key = draw(state, key)
    assert recorder.windows.steps
