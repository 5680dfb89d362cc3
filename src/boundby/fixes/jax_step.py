"""Changes to the compiled step of a JAX program: donated state, the precision of its products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.switch import Program, Switch

_PRECISION = "jax_default_matmul_precision"


class _Donation:
    """Compiles the step's function once more, with its state donated."""

    def __init__(self, function: Any, state: Sequence[int]) -> None:
        self.objects: Sequence[Any] = ()
        self._function = function
        self._state = tuple(state)
        self._donating: Callable[..., Any] | None = None

    def on(self) -> None:
        if self._donating is None:
            self._donating = self._function.compiled_with(donate_argnums=self._state)
        self._function.variant = self._donating
        note(f"donate_argnums={self._state}")

    def off(self) -> None:
        self._function.variant = None


class _Precision:
    """JAX's own setting, which is part of what a function is compiled for."""

    def __init__(self, jax: Any, precision: str) -> None:
        self.objects: Sequence[Any] = ()
        self._jax = jax
        self._precision = precision
        self._before: Any = None

    def on(self) -> None:
        self._before = self._jax.config.jax_default_matmul_precision
        self._jax.config.update(_PRECISION, self._precision)
        note(f"matmul precision {self._precision}")

    def off(self) -> None:
        self._jax.config.update(_PRECISION, self._before)


def _donation(program: Program) -> Switch | None:
    function = program.step_function
    if function is None or not program.state or not function.can_be_compiled_again:
        return None
    return _Donation(function, program.state)


def _precision(precision: str, program: Program) -> Switch | None:
    return _Precision(program.jax, precision) if program.jax is not None else None


DONATION = Fix(
    name="jax-donate",
    framework="jax",
    change="jax.jit(step, donate_argnums=...)  # the positions of the state",
    switch=_donation,
)
BFLOAT16_PRODUCTS = Fix(
    name="jax-bf16-products",
    framework="jax",
    change='jax.config.update("jax_default_matmul_precision", "bfloat16")',
    switch=functools.partial(_precision, "bfloat16"),
    precision="bfloat16",
    devices=("cuda",),
    slot="precision",
)
DEFAULT_PRODUCTS = Fix(
    name="jax-tf32-products",
    framework="jax",
    change='jax.config.update("jax_default_matmul_precision", "tensorfloat32")',
    switch=functools.partial(_precision, "tensorfloat32"),
    precision="tf32",
    devices=("cuda",),
    slot="precision",
)
