"""Whether a changed step of a JAX program computes the same results from the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from boundby.model.proof import Numerics

# Relative rounding of each precision that a fix may use.
_ROUNDING = {None: 6e-8, "tf32": 5e-4, "bfloat16": 4e-3}
# Allowed: this many roundings, beside as much as the program's own error.
_OWN, _ROUNDINGS = 2.0, 8.0


class JaxChecks:
    """The arguments of one call of the step's function, copied: a donation destroys them."""

    def __init__(self, jax: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._jax = jax
        self._args, self._kwargs = self._copied((args, kwargs))

    def _copied(self, tree: Any) -> Any:
        array = self._jax.Array
        return self._jax.tree_util.tree_map(
            lambda leaf: leaf.copy() if isinstance(leaf, array) else leaf, tree
        )

    def verdict(
        self, run: Callable[..., Any], set_variant: Callable[[bool], None], precision: str | None
    ) -> Numerics:
        """Compare results with and without the variant; if it lowers precision, compare both with
        a reference in full precision."""
        set_variant(False)
        before = self._results(run)
        reference = before
        if precision is not None:
            with self._jax.default_matmul_precision("highest"):
                reference = self._results(run)
        set_variant(True)
        try:
            after = self._results(run)
        finally:
            set_variant(False)
        return compare(before, after, reference, precision)

    def _results(self, run: Callable[..., Any]) -> list[tuple[str, Any]]:
        args, kwargs = self._copied((self._args, self._kwargs))
        leaves, _ = self._jax.tree_util.tree_flatten_with_path(run(*args, **kwargs))
        return [
            (self._jax.tree_util.keystr(path), np.asarray(leaf).astype(np.float64))
            for path, leaf in leaves
            if isinstance(leaf, self._jax.Array) and self._is_number(leaf)
        ]

    def _is_number(self, leaf: Any) -> bool:
        return bool(self._jax.numpy.issubdtype(leaf.dtype, np.floating))


def compare(
    before: list[tuple[str, Any]],
    after: list[tuple[str, Any]],
    reference: list[tuple[str, Any]],
    precision: str | None,
) -> Numerics:
    """The result with the largest error decides."""
    if not before:
        return Numerics(ok=False, verified=False, why="the step returns no floating-point array")
    if [name for name, _ in before] != [name for name, _ in after]:
        return Numerics(ok=False, why="the step returns other results")
    worst: tuple[float, str, float, float] | None = None
    for (name, old), (_, new), (_, exact) in zip(before, after, reference, strict=True):
        if old.shape != new.shape:
            return Numerics(ok=False, why=f"result{name} has another shape", tensor=name)
        error = _distance(new, exact)
        tolerance = _OWN * _distance(old, exact) + _ROUNDINGS * _ROUNDING.get(precision, 4e-3)
        if worst is None or error / tolerance > worst[0]:
            worst = (error / tolerance, name, error, tolerance)
    assert worst is not None
    ratio, name, error, tolerance = worst
    ok = ratio <= 1
    words = f"result{name} within {error:.2g} ({tolerance:.2g} allowed)"
    if not ok:
        words = f"result{name} is {error:.2g} off ({tolerance:.2g} allowed)"
    return Numerics(ok=ok, why=words, tensor=name, error=error, tolerance=tolerance)


def _distance(one: Any, other: Any) -> float:
    """The norm of the difference over that of the second; infinite if one of them is not finite."""
    is_equal = (one == other) | (np.isnan(one) & np.isnan(other))
    if is_equal.all():
        return 0.0
    size = float(np.linalg.norm(other.ravel()))
    away = float(np.linalg.norm((one - other).ravel()))
    if not np.isfinite(away):
        return float("inf")
    return away / size if size else away
