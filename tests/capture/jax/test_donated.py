"""A step that donates its state can be called again and again."""

from __future__ import annotations

from typing import Any

import pytest

from boundby.capture.jax.donated import next_arguments
from boundby.model.errors import BoundbyError

jax = pytest.importorskip("jax")
jnp = jax.numpy


def _steps(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: int = 3) -> Any:
    for _ in range(count):
        result = function(*args, **kwargs)
        args, kwargs = next_arguments(jax, args, kwargs, result)
    return args, kwargs


def test_results_take_the_places_of_donated_arguments() -> None:
    step = jax.jit(
        lambda params, state, x: ([p + 1 for p in params], {"m": state["m"] + x.sum()}, x.mean()),
        donate_argnums=(0, 1),
    )
    x = jnp.ones(3)
    (params, state, batch), _ = _steps(
        step, ([jnp.zeros(4), jnp.zeros(2)], {"m": jnp.zeros(())}, x), {}
    )
    assert [float(one[0]) for one in params] == [3.0, 3.0]
    assert float(state["m"]) == 9.0
    assert batch is x


def test_a_single_result_and_a_named_argument_are_donated_too() -> None:
    step = jax.jit(lambda *, cache: cache * 2, donate_argnames="cache")
    _, kwargs = _steps(step, (), {"cache": jnp.ones((2, 2))})
    assert float(kwargs["cache"][0, 0]) == 8.0


def test_equal_donated_arguments_take_different_results() -> None:
    step = jax.jit(lambda a, b: ((a + 1, b + 10), a.sum()), donate_argnums=(0, 1))
    (a, b), _ = _steps(step, (jnp.zeros(2), jnp.zeros(2)), {})
    assert (float(a[0]), float(b[0])) == (3.0, 30.0)


def test_an_argument_that_nothing_replaces_is_named() -> None:
    x = jnp.ones(4)
    x.delete()
    with pytest.raises(BoundbyError, match="argument 0"):
        next_arguments(jax, (x,), {}, jnp.ones(3))


def test_arguments_that_are_not_donated_stay() -> None:
    x, table = jnp.ones(4), {"t": jnp.ones(3)}
    args, kwargs = next_arguments(jax, (x,), {"table": table}, jnp.zeros(4))
    assert args[0] is x and kwargs["table"] is table
