"""Fixes of JAX programs: switched at step boundaries, compared on the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from boundby.capture.jax.hooks import Function, JaxHooks
from boundby.fixes.jax_step import BFLOAT16_PRODUCTS, DONATION
from boundby.fixes.switch import Program
from boundby.prove.jax_checks import JaxChecks, compare

jax = pytest.importorskip("jax")
jnp = jax.numpy


class _Silent:
    def calls(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        return None


@pytest.fixture
def hooks() -> Iterator[JaxHooks]:
    found = JaxHooks()
    found.install(jax)
    found.watcher = _Silent()
    yield found
    found.remove()


def _program(hooks: JaxHooks) -> tuple[Any, Program]:
    step = jax.jit(lambda w, x: (w - 0.1 * x.mean(0), (w * x).sum()))
    (function,) = hooks.functions
    return step, Program(torch=None, jax=jax, step_function=function, state=(0,))


def test_donation_reuses_state_only_while_switched_on(hooks: JaxHooks) -> None:
    step, program = _program(hooks)
    switch = DONATION.switch_for(program)
    assert switch is not None
    x = jnp.ones((4, 8))
    switch.on()
    w = jnp.ones(8)
    donated, _ = step(w, x)
    assert w.is_deleted()
    switch.off()
    kept, _ = step(donated, x)
    assert not donated.is_deleted()
    assert np.allclose(kept, 0.8)


def test_matmul_precision_is_restored(hooks: JaxHooks) -> None:
    _, program = _program(hooks)
    before = jax.config.jax_default_matmul_precision
    switch = BFLOAT16_PRODUCTS.switch_for(program)
    assert switch is not None
    switch.on()
    assert jax.config.jax_default_matmul_precision == "bfloat16"
    switch.off()
    assert jax.config.jax_default_matmul_precision == before


def test_a_donating_step_computes_the_same(hooks: JaxHooks) -> None:
    _, program = _program(hooks)
    switch = DONATION.switch_for(program)
    assert switch is not None
    checks = JaxChecks(jax, (jnp.ones(8), jnp.ones((4, 8))), {})

    def set_variant(changed: bool) -> None:
        (switch.on if changed else switch.off)()

    verdict = checks.verdict(program.step_function.run, set_variant, None)
    assert verdict.ok, verdict.why
    assert program.step_function.variant is None


@pytest.mark.parametrize(
    ("factor", "precision", "ok"),
    [(1.0, None, True), (1.01, None, False), (1.001, "bfloat16", True), (1.1, "bfloat16", False)],
)
def test_results_are_compared_within_the_precision_of_the_fix(
    factor: float, precision: str | None, ok: bool
) -> None:
    exact = np.linspace(1, 2, 64)
    verdict = compare([("[0]", exact)], [("[0]", factor * exact)], [("[0]", exact)], precision)
    assert verdict.ok is ok


def test_results_with_nan_are_rejected() -> None:
    exact = np.ones(4)
    spoilt = np.array([1.0, np.nan, 1.0, 1.0])
    assert not compare([("[0]", exact)], [("[0]", spoilt)], [("[0]", exact)], None).ok


def test_step_without_numeric_results_is_unverified() -> None:
    verdict = compare([], [], [], None)
    assert not verdict.ok
    assert not verdict.verified
