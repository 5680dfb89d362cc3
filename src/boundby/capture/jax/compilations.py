"""What a script compiled, and when: the evidence for recompilation in the loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boundby.capture.jax import compat

# The event whose duration is that of the compiler itself.
_BACKEND = "/jax/core/compile/backend_compile_duration"
_TRACING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    _BACKEND,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation of a function, after so many steps."""

    step: int
    function: str
    ns: float


class Compilations:
    """Listens to jax's own reports of compilations; cached calls report nothing."""

    def __init__(self, jax: Any, step: Callable[[], int]) -> None:
        self.seen: list[Compilation] = []
        self.spent_ns = 0.0  # tracing, lowering and compiling
        self._step = step
        self._undo = compat.on_compile(jax, self._on_event)
        self.began = time.perf_counter_ns()

    def _on_event(self, event: str, seconds: float, function: str) -> None:
        if event in _TRACING:
            self.spent_ns += seconds * 1e9
        if event == _BACKEND:
            self.seen.append(Compilation(step=self._step(), function=function, ns=seconds * 1e9))

    def close(self) -> None:
        self._undo()
