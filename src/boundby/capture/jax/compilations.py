"""What a script compiled, and when: the evidence for recompilation in the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from boundby.capture.jax import compat
from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.places import users_place
from boundby.capture.jax.signatures import Explanation, Signatures
from boundby.capture.process.guard import Guard

# The event whose duration is that of the compiler itself.
_BACKEND = "/jax/core/compile/backend_compile_duration"
_TRACING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    _BACKEND,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation of a function, after so many steps; of one compiled before, with why.
    `place`: the file and line of the user's that called it."""

    step: int
    function: str
    ns: float
    why: Explanation | None = None
    place: tuple[str, int] | None = None


class Compilations:
    """Listens to jax's own reports of compilations; cached calls report nothing."""

    def __init__(
        self, jax: Any, hooks: JaxHooks, step: Callable[[], int], guard: Guard | None = None
    ) -> None:
        self.compilations: list[Compilation] = []
        self.spent_ns = 0.0  # tracing, lowering and compiling
        # Intervals of `spent_ns`, one after the other, each with its begin.
        self._spent: list[tuple[float, float]] = []
        self._hooks = hooks
        self._signatures = Signatures(jax)
        self._step = step
        self._guard = guard or Guard()
        self._loops: dict[Hashable, list[Any]] = {}
        self._undo = compat.on_compile(jax, self._on_event)
        self.began = time.perf_counter_ns()

    def _on_event(self, event: str, seconds: float, function: str) -> None:
        if event in _TRACING:
            self._add(seconds * 1e9)
        if event == _BACKEND:
            self._guard.do(self._compiled, function, seconds * 1e9)

    def _add(self, ns: float) -> None:
        """Add an interval that ends now; those inside it are counted with it."""
        began = time.perf_counter_ns() - ns
        while self._spent and self._spent[-1][0] >= began:
            self.spent_ns -= self._spent.pop()[1]
        self._spent.append((began, ns))
        self.spent_ns += ns

    def _compiled(self, function: str, ns: float) -> None:
        call, why = self._hooks.call, None
        if call is not None and call.function.is_loop:
            # Its program is kept with the objects that are its body.
            bodies = [one for one in (*call.args, *call.kwargs.values()) if callable(one)]
            before = self._loops.get(call.function.key, bodies)
            is_new = any(now is not then for now, then in zip(bodies, before, strict=False))
            why = Explanation(is_new=True) if is_new else None
            self._loops[call.function.key] = bodies
        elif call is not None and function in (call.function.name, f"jit({call.function.name})"):
            why = self._signatures.explain(call)
        else:
            # A call that is not watched: the next one of this function is.
            for one in self._hooks.functions:
                if function in (one.name, f"jit({one.name})"):
                    one.is_quiet = False
        self.compilations.append(
            Compilation(step=self._step(), function=function, ns=ns, why=why, place=users_place())
        )

    def close(self) -> None:
        """Listen no longer; a second call does nothing."""
        undo, self._undo = self._undo, lambda: None
        undo()
