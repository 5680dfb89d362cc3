"""The capture of a live run, of either framework, as an observation."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from boundby.capture.jax import compat
from boundby.capture.jax.recorder import JaxCapture
from boundby.capture.torch.capture import Capture
from boundby.model.observation import Observation

LiveCapture = Capture | JaxCapture


def uses_jax(values: Sequence[object]) -> bool:
    """Whether a function with its arguments uses JAX; without any, whether only JAX is loaded."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if "torch" not in sys.modules:
        return True
    return any(hasattr(value, "lower") or compat.leaves(jax, value) for value in values)


def observe(capture: LiveCapture, *, target: str | None = None) -> Observation:
    """The observation: the steps of the main kind, and the profiled one that is most like them."""
    if isinstance(capture, JaxCapture):
        from boundby.capture.jax.observe import observe as observe_jax

        return observe_jax(capture, target=target)
    from boundby.capture.torch.observe import observe as observe_torch

    return observe_torch(capture, target=target)
