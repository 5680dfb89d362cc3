"""From calls of compiled functions to steps: which function's return ends one.

A training step is delimited by the function that carries state: what it returned is passed to it
again. Of several the one that is called least often is taken, so that accumulated gradients and the
update that follows are one step. Without such a function the one with most time is taken.

While the function is being looked for, each call is waited for, to know its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from boundby.capture.jax import compat
from boundby.capture.jax.function_calls import MOST_CALLS_A_STEP, Args, FunctionCalls, Kwargs
from boundby.capture.jax.hooks import Function
from boundby.capture.torch.shapes import Shape, Shapes, step_kind
from boundby.model.jax_facts import JaxHostArray
from boundby.model.step_kind import Mode, StepKind

# A function is the delimiter of steps after so many calls.
_CALLS = 3
# Without a function that carries state, the longest one is taken after so many calls of it.
_CALLS_WITHOUT_STATE = 5


class JaxStepFinder:
    """Finds where steps end; calls `on_step(kind, array)` with an array of the step's results."""

    def __init__(
        self,
        jax: Any,
        on_step: Callable[[StepKind, Any], None],
        on_restart: Callable[[], None],
        *,
        by_marks: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.calls = 0
        self.marks = 0
        self.anchor: Function | None = None
        self._jax = jax
        self._on_step = on_step
        self._on_restart = on_restart
        self._by_marks = by_marks
        self._clock = clock
        self._functions: dict[Hashable, FunctionCalls] = {}
        self._shapes = Shapes()
        self._batch_shape: Shape | None = None
        self._kinds: dict[tuple[Mode, Shape | None], StepKind] = {}
        self._latest: Any = None
        self._has_trained = False
        self._is_accumulated = False

    @property
    def found_by(self) -> str | None:
        if self.marks:
            return "mark"
        return "call" if self.anchor is not None else None

    @property
    def delimiter(self) -> FunctionCalls | None:
        """The calls of the function that ends steps."""
        return self._functions.get(self.anchor.key) if self.anchor is not None else None

    @property
    def leaves(self) -> int | None:
        """How many arrays the step's function takes."""
        return self.delimiter.leaves if self.delimiter is not None else None

    @property
    def donates(self) -> bool | None:
        """Whether the step's function reuses the memory of its arguments."""
        found = self.delimiter
        is_asked = found is not None and found.carries and found.function.compiled is not None
        return found.donates if found is not None and is_asked else None

    @property
    def carried_bytes(self) -> int | None:
        """The size of the state that the step's function returns and takes again."""
        found = self.delimiter
        return found.carried_bytes if found is not None and found.carries else None

    @property
    def host_arrays(self) -> list[JaxHostArray]:
        """The arrays of numpy that the step's function takes."""
        return self.delimiter.host_arrays if self.delimiter is not None else []

    @property
    def state_positions(self) -> tuple[int, ...]:
        """The positions of the arguments that are results in the next step."""
        return self.delimiter.state if self.delimiter is not None else ()

    @property
    def has_state(self) -> bool:
        return bool(self.state_positions)

    def awaits_more(self, functions: Iterable[Function]) -> bool:
        """Whether an update is likely to come: no function carries state yet, and one of the
        script's was not called so far, or computed gradients a few times only."""
        found = self.delimiter
        if self.marks or found is None or found.carries_state or found.trains:
            return False
        for function in functions:
            known = self._functions.get(function.key)
            if known is None and function.is_scripts_own:
                return True
            if known is not None and known.calls < _CALLS and function.traced_gradient:
                return True
        return False

    def mark(self) -> None:
        """End a step where the script marks it."""
        if not self.marks and self.anchor is not None:
            self._on_restart()
        self.marks += 1
        self._on_step(step_kind("step"), self._latest)

    def calls_begin(self, function: Function, args: Args, kwargs: Kwargs) -> Callable[[Any], None]:
        """A top-level call begins; the returned function gets its result."""
        self.calls += 1
        called = self._functions.get(function.key)
        if called is None:
            called = self._functions[function.key] = FunctionCalls(self._jax, function)
        called.function = function
        if self.anchor is not None and function is not self.anchor:
            now = self._functions[self.anchor.key].calls
            called.follows_itself |= called.calls > 0 and now == called.anchor_calls
            called.anchor_calls = now
        if self.marks or self._by_marks:
            return self.keep
        if self.anchor is None or (called.calls < _CALLS and function is not self.anchor):
            return _nothing if compat.is_tracing() else self._look_at(called, args, kwargs)
        called.calls += 1
        if function is not self.anchor:
            function.is_quiet = self._is_quiet(called)
            if function.traced_gradient:
                self._batch_shape = called.batch_shape(args, kwargs)
            return _nothing
        if self._is_accumulated and not called.was_updated(args, kwargs):
            return _nothing
        shape = called.batch_shape(args, kwargs)
        return lambda result: self._step_ended(called, shape, result)

    def keep(self, result: Any) -> None:
        """Keep the smallest of these arrays: the latest step is complete when it is."""
        leaves = compat.leaves(self._jax, result)
        self._latest = min(leaves, key=lambda leaf: leaf.size, default=self._latest)

    def _look_at(self, called: FunctionCalls, args: Args, kwargs: Kwargs) -> Callable[[Any], None]:
        """Measure one call and what it has in common with the one before."""
        shape, carried = called.compare(args, kwargs)
        called.function.batch = shape or ()
        called.function.carries = called.carries > 0
        called.function.samples = called.samples
        called.function.is_fed = any(not one.is_same for one in called.host_arrays)
        if called.function.traced_gradient:
            self._batch_shape = shape
        began = self._clock()

        def ended(result: Any) -> None:
            called.wait_for(result)
            called.calls += 1
            if called.calls > 1:
                called.ns += self._clock() - began
            if carried is not None and carried.is_deleted():
                called.donates = True
            self._choose()
            if self.anchor is called.function:
                self._step_ended(called, shape, result)

        return ended

    def _choose(self) -> None:
        """Decide on the delimiter, or change to one that is called less often."""
        known = [called for called in self._functions.values() if called.calls >= _CALLS]
        if with_state := [called for called in known if called.carries_state]:
            best = min(with_state, key=lambda called: (called.calls, -called.ns))
            now = self.delimiter
            is_inner = now is not None and now.calls <= MOST_CALLS_A_STEP * best.calls
            is_rarer = best is not now and now is not None and best.calls < now.calls
            # Metrics of an evaluation carry state as well, but evaluation goes on by itself.
            is_outer = is_rarer and is_inner and not best.follows_itself
            if now is None or not now.carries_state or is_outer:
                self._take(best)
        elif self.anchor is None:
            often = [called for called in known if called.calls >= _CALLS_WITHOUT_STATE]
            if often and not any(called.may_accumulate for called in often):
                # An update that is not compiled calls compiled functions of its library.
                training = [called for called in known if called.function.traced_gradient]
                self._take(max(training or known, key=lambda called: called.ns))

    def _is_quiet(self, called: FunctionCalls) -> bool:
        """Whether a function tells neither where steps end nor what their batch is."""
        tells = called.carries_state or called.function.traced_gradient
        return not tells and self.delimiter is not None and self.delimiter.carries_state

    def _take(self, called: FunctionCalls) -> None:
        self._has_trained = False
        self._is_accumulated = called.accumulates
        for other in self._functions.values():
            other.function.is_quiet = False
        if self.anchor is not None and self.anchor is not called.function:
            self._on_restart()
        self.anchor = called.function

    def _step_ended(self, called: FunctionCalls, shape: Shape | None, result: Any) -> None:
        self._latest = called.smallest(result)
        self._has_trained = self._has_trained or self._is_training(called)
        mode: Mode = "train" if self._has_trained else "forward"
        if self._batch_shape is not None and not called.function.traced_gradient:
            # The update takes gradients; the batch went to the function that computed them.
            shape, self._batch_shape = self._batch_shape, None
        key = (mode, self._shapes.own(shape))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = step_kind(*key)
        self._on_step(kind, self._latest)

    def _is_training(self, called: FunctionCalls) -> bool:
        if called.function.traced_gradient or called.function.has_gradient:
            return True
        return any(
            other.function.traced_gradient or other.function.has_gradient
            for other in self._functions.values()
            if other.calls >= called.calls
        )


def _nothing(_: Any) -> None:
    return
