"""`boundby.diagnose` of JAX functions."""

from __future__ import annotations

from typing import Any

import pytest

import boundby
from tests.machines import round_machine

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.mark.parametrize("named", [False, True])
def test_a_step_that_donates_its_state_is_diagnosed(named: bool) -> None:
    def step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: ((x @ p[0]) @ p[1]).mean())(params)
        return [p - 0.1 * g for p, g in zip(params, grads, strict=True)], loss

    compiled = jax.jit(step, donate_argnames="params")
    params, x = [jnp.ones((8, 8)), jnp.ones((8, 8))], jnp.ones((4, 8))
    options: dict[str, Any] = {"machine": round_machine(), "warmup": 3, "steps": 3, "profiled": 1}
    if named:
        found = boundby.diagnose(compiled, params=params, x=x, **options)
    else:
        found = boundby.diagnose(compiled, params, x, **options)
    assert found.framework == "jax"
    assert found.step.wall_ns > 0
