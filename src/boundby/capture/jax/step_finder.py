"""From calls of compiled functions to steps: which function's return ends one.

A training step is delimited by the function that carries state: what it returned is passed to it
again. Of several the one that is called least often is taken, so that accumulated gradients and the
update that follows are one step. Without such a function the one with most time is taken.

While the function is being looked for, each call is waited for, to know its time.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from boundby.capture.jax import compat
from boundby.capture.jax.hooks import Function
from boundby.capture.torch.shapes import Shape, Shapes, step_kind
from boundby.model.jax_facts import JaxHostArray
from boundby.model.step_kind import Mode, StepKind

# A function is the delimiter of steps after so many calls.
_CALLS = 3
# Without a function that carries state, the longest one is taken after so many calls of it.
_CALLS_WITHOUT_STATE = 5
# An update may follow so many calls of the function that computes gradients.
_MOST_CALLS_A_STEP = 64
# Arrays of one call that are looked at.
_MOST_LEAVES = 4096


class _Arrays:
    """Some arrays by identity, without keeping them alive: the script may be short of memory."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        self._refs = {id(array): weakref.ref(array) for array in arrays}

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, array: Any) -> bool:
        found = self._refs.get(id(array))
        return found is not None and found() is array


@dataclass(slots=True)
class _Seen:
    """What is known of one function of the script."""

    function: Function
    calls: int = 0
    ns: float = 0.0  # of all calls but the first, which compiles
    carries: int = 0
    leaves: int = 0
    outputs: _Arrays = field(default_factory=lambda: _Arrays(()))
    # By position or name of each argument: the arrays that it held last.
    held: dict[int | str, _Arrays] = field(default_factory=dict)
    given: dict[str, tuple[int, _Arrays, bool]] = field(default_factory=dict)  # numpy's
    sample: int | str | None = None  # the argument that holds the batch
    donates: bool = False
    state: tuple[int, ...] = ()  # positions of the arguments that are its results
    carried_bytes: int = 0
    anchor_calls: int = 0  # of the delimiter, at the last call of this function
    follows_itself: bool = False  # called again without a call of the delimiter between
    updates: int = 0  # calls with other parameters than the one before
    parameters: _Arrays = field(default_factory=lambda: _Arrays(()))  # those of the last step
    smallest: int | None = None  # which of the leaves of its result
    smallest_part: int | None = None  # the same of its parts, where it is one

    @property
    def carries_state(self) -> bool:
        return self.carries > 0 or self.function.has_gradient

    @property
    def may_accumulate(self) -> bool:
        """Whether several of its calls may be one step, for all that was seen."""
        is_known = self.updates > 0 or self.calls >= _MOST_CALLS_A_STEP
        return self.function.traced_gradient and not self.carries_state and not is_known

    @property
    def accumulates(self) -> bool:
        """It computes gradients of the same parameters several times before they are updated."""
        is_once_each = self.updates >= self.calls - 1
        return not self.carries_state and self.updates > 0 and not is_once_each


class JaxStepFinder:
    """Tells where a step ends: `on_step(kind, array)` with an array of its results."""

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
        self._seen: dict[Hashable, _Seen] = {}
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
    def leaves(self) -> int | None:
        """How many arrays the step's function takes."""
        seen = self._seen.get(self.anchor.key) if self.anchor is not None else None
        return seen.leaves if seen is not None else None

    @property
    def donates(self) -> bool | None:
        """Whether the step's function reuses the memory of its arguments."""
        seen = self._seen.get(self.anchor.key) if self.anchor is not None else None
        return seen.donates if seen is not None and seen.carries else None

    @property
    def carried_bytes(self) -> int | None:
        """The size of the state that the step's function returns and takes again."""
        seen = self._seen.get(self.anchor.key) if self.anchor is not None else None
        return seen.carried_bytes if seen is not None and seen.carries else None

    @property
    def host_arrays(self) -> list[JaxHostArray]:
        """The arrays of numpy that the step's function takes."""
        seen = self._seen.get(self.anchor.key) if self.anchor is not None else None
        given = seen.given if seen is not None else {}
        return [
            JaxHostArray(argument=name, bytes=size, is_same=is_same)
            for name, (size, _, is_same) in given.items()
        ]

    @property
    def state_positions(self) -> tuple[int, ...]:
        """The positions of the arguments that are results in the next step."""
        seen = self._seen.get(self.anchor.key) if self.anchor is not None else None
        return seen.state if seen is not None else ()

    @property
    def has_state(self) -> bool:
        return bool(self.state_positions)

    def awaits_more(self, functions: Iterable[Function]) -> bool:
        """Whether an update is likely to come: no function carries state yet, and one of the
        script's was not called so far, or computed gradients a few times only."""
        if self.marks or self.anchor is None or self._seen[self.anchor.key].carries_state:
            return False
        for function in functions:
            seen = self._seen.get(function.key)
            if seen is None and function.is_scripts_own:
                return True
            if seen is not None and seen.calls < _CALLS and function.traced_gradient:
                return True
        return False

    def mark(self) -> None:
        """The script says itself that a step ends here."""
        if not self.marks and self.anchor is not None:
            self._on_restart()
        self.marks += 1
        self._on_step(step_kind("step"), self._latest)

    def calls_begin(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        """A top-level call begins; the returned function is told its result."""
        self.calls += 1
        seen = self._seen.get(function.key)
        if seen is None:
            seen = self._seen[function.key] = _Seen(function)
        seen.function = function
        if self.anchor is not None and function is not self.anchor:
            now = self._seen[self.anchor.key].calls
            seen.follows_itself |= seen.calls > 0 and now == seen.anchor_calls
            seen.anchor_calls = now
        if self.marks or self._by_marks:
            return self.keep
        if self.anchor is None or (seen.calls < _CALLS and function is not self.anchor):
            return _nothing if compat.is_tracing() else self._look_at(seen, args, kwargs)
        seen.calls += 1
        if function is not self.anchor:
            function.is_quiet = self._is_quiet(seen)
            if function.traced_gradient:
                self._batch_shape = self._known_shape(seen, args, kwargs)
            return _nothing
        if self._is_accumulated and not self._was_updated(seen, args, kwargs):
            return _nothing
        shape = self._known_shape(seen, args, kwargs)
        return lambda result: self._step_ended(seen, shape, result)

    def _look_at(
        self, seen: _Seen, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        """Measure one call and what it has in common with the one before."""
        held = {name: self._arrays_in(value) for name, value in _arguments(args, kwargs)}
        seen.leaves = sum(map(len, held.values()))
        carried = next((a for arrays in held.values() for a in arrays if a in seen.outputs), None)
        if carried is not None:
            seen.carries += 1
            seen.state = tuple(
                name
                for name, arrays in held.items()
                if isinstance(name, int) and arrays and all(a in seen.outputs for a in arrays)
            )
            every = (a for arrays in held.values() for a in arrays)
            seen.carried_bytes = sum(a.nbytes for a in every if a in seen.outputs)
        if seen.calls:
            seen.sample = self._batch_argument(seen, held, _arguments(args, kwargs))
            seen.updates += self._was_updated(seen, args, kwargs)
        seen.held = {name: _Arrays(arrays) for name, arrays in held.items()}
        shape = self._shape_of(seen, args, kwargs)
        if seen.function.traced_gradient:
            self._batch_shape = shape
        seen.given = self._given(seen, _arguments(args, kwargs))
        began = self._clock()

        def ended(result: Any) -> None:
            leaves = self._arrays_in(result)
            for leaf in leaves:
                if compat.is_ready_to_wait(leaf):
                    leaf.block_until_ready()
            seen.calls += 1
            if seen.calls > 1:
                seen.ns += self._clock() - began
            seen.outputs = _Arrays(leaves)
            if carried is not None and carried.is_deleted():
                seen.donates = True
            self._choose()
            if self.anchor is seen.function:
                self._step_ended(seen, shape, result)

        return ended

    def _choose(self) -> None:
        """Decide on the delimiter, or change to one that is called less often."""
        with_state = [
            seen for seen in self._seen.values() if seen.carries_state and seen.calls >= _CALLS
        ]
        if with_state:
            best = min(with_state, key=lambda seen: (seen.calls, -seen.ns))
            now = self._seen.get(self.anchor.key) if self.anchor is not None else None
            is_inner = now is not None and now.calls <= _MOST_CALLS_A_STEP * best.calls
            is_rarer = best is not now and now is not None and best.calls < now.calls
            # Metrics of an evaluation carry state as well, but evaluation goes on by itself.
            is_outer = is_rarer and is_inner and not best.follows_itself
            if now is None or not now.carries_state or is_outer:
                self._take(best)
        elif self.anchor is None:
            often = [seen for seen in self._seen.values() if seen.calls >= _CALLS_WITHOUT_STATE]
            if often and not any(seen.may_accumulate for seen in often):
                known = [seen for seen in self._seen.values() if seen.calls >= _CALLS]
                # An update that is not compiled calls compiled functions of its library.
                training = [seen for seen in known if seen.function.traced_gradient]
                self._take(max(training or known, key=lambda seen: seen.ns))

    def _is_quiet(self, seen: _Seen) -> bool:
        """Whether a function tells neither where steps end nor what their batch is."""
        assert self.anchor is not None
        tells = seen.carries_state or seen.function.traced_gradient
        return not tells and self._seen[self.anchor.key].carries_state

    def _take(self, seen: _Seen) -> None:
        self._has_trained = False
        self._is_accumulated = seen.accumulates
        for other in self._seen.values():
            other.function.is_quiet = False
        if self.anchor is not None and self.anchor is not seen.function:
            self._on_restart()
        self.anchor = seen.function

    def _step_ended(self, seen: _Seen, shape: Shape | None, result: Any) -> None:
        self._latest = self._smallest(seen, result)
        mode: Mode = "train" if self._has_trained or self._trains(seen) else "forward"
        if self._batch_shape is not None and not seen.function.traced_gradient:
            # The update takes gradients; the batch went to the function that computed them.
            shape, self._batch_shape = self._batch_shape, None
        key = (mode, self._shapes.own(shape))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = step_kind(*key)
        self._on_step(kind, self._latest)

    def _trains(self, seen: _Seen) -> bool:
        self._has_trained = self._has_trained or self._is_training(seen)
        return self._has_trained

    def _is_training(self, seen: _Seen) -> bool:
        if seen.function.traced_gradient or seen.function.has_gradient:
            return True
        return any(
            other.function.traced_gradient or other.function.has_gradient
            for other in self._seen.values()
            if other.calls >= seen.calls
        )

    def keep(self, result: Any) -> None:
        """The latest step is complete when the smallest of these arrays is."""
        leaves = compat.leaves(self._jax, result)
        self._latest = min(leaves, key=lambda leaf: leaf.size, default=self._latest)

    def _smallest(self, seen: _Seen, result: Any) -> Any:
        """The result that is least likely to be donated to the next call."""
        if isinstance(result, tuple) and seen.smallest_part is not None:
            # Without a walk over hundreds of arrays, where it stands alone in the result.
            part = result[seen.smallest_part] if seen.smallest_part < len(result) else None
            if compat.is_waitable(part):
                return part
        leaves = self._jax.tree_util.tree_leaves(result)
        at = seen.smallest
        if at is None or at >= len(leaves) or not compat.is_waitable(leaves[at]):
            arrays = [at for at, leaf in enumerate(leaves) if compat.is_waitable(leaf)]
            at = seen.smallest = min(arrays, key=lambda at: leaves[at].size, default=None)
        if at is None:
            return None
        if isinstance(result, tuple):
            parts = [number for number, part in enumerate(result) if part is leaves[at]]
            seen.smallest_part = parts[0] if parts else None
        return leaves[at]

    def _arrays_in(self, value: Any) -> list[Any]:
        return compat.leaves(self._jax, value)[:_MOST_LEAVES]

    def _batch_argument(
        self,
        seen: _Seen,
        held: dict[int | str, list[Any]],
        given_values: Sequence[tuple[int | str, Any]],
    ) -> int | str | None:
        """The argument that holds the batch: new in each call, and no result of the last one.

        Parameters that are updated outside of the function are new as well: they come before the
        batch, whose parts have their first extent in common. Where no argument is new, one that
        is no tree is taken, or the smallest.
        """
        for name, value in given_values:
            if not held[name] and self._shape_in(value):
                return name  # an array of numpy's comes from the script in each call
        shapes = {name: self._shape_in(arrays) for name, arrays in held.items()}
        given = [
            name
            for name, arrays in held.items()
            if shapes[name] and not any(array in seen.outputs for array in arrays)
        ]
        fresh = [
            name
            for name in given
            if not all(array in seen.held.get(name, _Arrays(())) for array in held[name])
        ]
        # A batch that stays the same, or the last result of a decoder, is an array of its own;
        # parameters are trees.
        single = [name for name in given if len(held[name]) == 1]
        alone = [name for name, arrays in held.items() if len(arrays) == 1 and shapes[name]]
        chosen = fresh or single or alone
        if chosen:
            last = shapes[chosen[-1]]
            return next(name for name in chosen if (shapes[name] or ())[:1] == (last or ())[:1])
        return min(given, key=lambda name: sum(a.nbytes for a in held[name]), default=None)

    def _was_updated(self, seen: _Seen, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the first argument that is no batch holds other arrays than at the last step."""
        for name, value in _arguments(args, kwargs):
            if name != seen.sample and (arrays := self._arrays_in(value)):
                if arrays[0] in seen.parameters:
                    return False
                is_first = not len(seen.parameters)
                seen.parameters = _Arrays(arrays[:1])
                return not is_first
        return False

    def _given(
        self, seen: _Seen, values: Sequence[tuple[int | str, Any]]
    ) -> dict[str, tuple[int, _Arrays, bool]]:
        """By argument its arrays of numpy: how large, which, and whether all were given before."""
        found = {}
        for position, value in values:
            leaves = self._jax.tree_util.tree_leaves(value)[:_MOST_LEAVES]
            arrays = [leaf for leaf in leaves if compat.is_numpy(leaf)]
            if not arrays:
                continue
            names = seen.function.arguments
            is_known = isinstance(position, int) and position < len(names)
            name = names[int(position)] if is_known else str(position)
            _, before, _ = seen.given.get(name, (0, _Arrays(()), False))
            same = all(array in before for array in arrays)
            found[name] = sum(array.nbytes for array in arrays), _Arrays(arrays), same
        return found

    def _shape_of(self, seen: _Seen, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shape | None:
        if isinstance(seen.sample, int):
            return self._shape_in(args[seen.sample]) if seen.sample < len(args) else None
        return self._shape_in(kwargs[seen.sample]) if seen.sample in kwargs else None

    def _known_shape(
        self, seen: _Seen, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Shape | None:
        """The batch's shape in a clean step: of an argument that is one array at once."""
        if isinstance(seen.sample, int) and seen.sample < len(args):
            shape = getattr(args[seen.sample], "shape", None)
            if type(shape) is tuple and shape:
                return shape
        return self._shape_of(seen, args, kwargs)

    def _shape_in(self, value: Any) -> Shape | None:
        for leaf in self._jax.tree_util.tree_leaves(value)[:_MOST_LEAVES]:
            shape = getattr(leaf, "shape", None)
            if shape and hasattr(leaf, "dtype") and not _is_random_key(leaf):
                return tuple(int(extent) for extent in shape)
        return None


def _is_random_key(array: Any) -> bool:
    """Keys of the random generator are arrays as well: of a type of their own, or two words."""
    name = str(array.dtype)
    return name.startswith("key<") or (name == "uint32" and tuple(array.shape) == (2,))


def _arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[int | str, Any]]:
    return [*enumerate(args), *kwargs.items()]


def _nothing(_: Any) -> None:
    return
