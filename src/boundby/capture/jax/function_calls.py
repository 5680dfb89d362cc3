"""What is known of the calls of one function: its state, its batch, its parameters, its results.

A call is compared with the one before, by the identity of the arrays: an argument that was a result
carries state, one that is new in each call is the batch, and one that changes only now and then
holds parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from boundby.capture.jax import compat
from boundby.capture.jax.hooks import Function
from boundby.capture.torch.shapes import Shape
from boundby.model.jax_facts import JaxHostArray

# An update may follow so many calls of the function that computes gradients.
MOST_CALLS_A_STEP = 64
# Smaller arrays of numpy are copied within microseconds; larger ones are timed.
_LEAST_COPIED = 64 * 1024
# Arrays of one call that are looked at.
_MOST_LEAVES = 4096

Argument = int | str  # a position, or a name
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class _Arrays:
    """Some arrays by identity, without keeping them alive: the script may be short of memory."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self._refs = {id(array): weakref.ref(array) for array in arrays}

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, array: Any) -> bool:
        found = self._refs.get(id(array))
        return found is not None and found() is array


class _Numpy(NamedTuple):
    """Arrays of numpy in one argument: the size of those that a call copies, whether all were
    passed before, and then how long their copy takes."""

    size: int
    arrays: _Arrays
    is_same: bool = False
    copy_ns: float | None = None


class FunctionCalls:
    """The calls of one compiled function of the script."""

    def __init__(self, jax: Any, function: Function) -> None:
        self.function = function
        self.calls = 0
        self.ns = 0.0  # of all calls but the first, which compiles
        self.carries = 0  # calls that were given a result of the one before
        self.state: tuple[int, ...] = ()  # positions of the arguments that are its results
        self.carried_bytes = 0
        self.donates = False
        self.leaves = 0
        self.anchor_calls = 0  # of the delimiter, at the last call of this function
        self.follows_itself = False  # called again without a call of the delimiter between
        self._jax = jax
        self._outputs = _Arrays()
        self._held: dict[Argument, _Arrays] = {}  # by argument, the arrays of the last call
        self._numpy: dict[str, _Numpy] = {}
        self._whole = _Arrays()  # the arrays of numpy of which the last call was given one row
        self.samples: int | None = None  # called on one row after the other of so many
        self._sample: Argument | None = None  # the argument that holds the batch
        self._updates = 0  # calls with other parameters than the one before
        self._parameters = _Arrays()  # those of the last step
        self._smallest: int | None = None  # which of the leaves of its result
        self._smallest_part: int | None = None  # the same of its parts, where it is one

    @property
    def carries_state(self) -> bool:
        return self.carries > 0 or self.function.has_gradient

    @property
    def may_accumulate(self) -> bool:
        """Whether several of its calls may be one step, for all that was seen."""
        is_known = self._updates > 0 or self.calls >= MOST_CALLS_A_STEP
        return self.function.traced_gradient and not self.carries_state and not is_known

    @property
    def trains(self) -> bool:
        """Whether it computes gradients, and an update would have come between its calls."""
        return self.function.traced_gradient and not self.may_accumulate

    @property
    def accumulates(self) -> bool:
        """Whether it computes gradients of the same parameters several times before they are
        updated."""
        is_once_each = self._updates >= self.calls - 1
        return not self.carries_state and self._updates > 0 and not is_once_each

    @property
    def host_arrays(self) -> list[JaxHostArray]:
        """The arrays of numpy that it takes."""
        return [
            JaxHostArray(argument=name, bytes=one.size, is_same=one.is_same, copy_ns=one.copy_ns)
            for name, one in self._numpy.items()
        ]

    def compare(self, args: Args, kwargs: Kwargs) -> tuple[Shape | None, Any]:
        """Compare a call with the one before: its batch's shape, and an array that it carries."""
        held = {name: self._arrays_in(value) for name, value in _arguments(args, kwargs)}
        self.leaves = sum(map(len, held.values()))
        every = [array for arrays in held.values() for array in arrays]
        carried = [array for array in every if array in self._outputs]
        if carried:
            self.carries += 1
            self.state = tuple(
                name
                for name, arrays in held.items()
                if isinstance(name, int) and arrays and all(a in self._outputs for a in arrays)
            )
            self.carried_bytes = sum(array.nbytes for array in carried)
        if self.calls:
            self._sample = self._batch_argument(held, _arguments(args, kwargs))
            self._updates += self.was_updated(args, kwargs)
        self._held = {name: _Arrays(arrays) for name, arrays in held.items()}
        self._numpy = self._numpy_arguments(_arguments(args, kwargs))
        self._compare_rows([*args, *kwargs.values()])
        return self._full_shape(args, kwargs), carried[0] if carried else None

    def wait_for(self, result: Any) -> None:
        """Wait until a call's results are computed, and keep which arrays they are."""
        leaves = self._arrays_in(result)
        for leaf in leaves:
            if compat.is_ready_to_wait(leaf):
                leaf.block_until_ready()
        self._outputs = _Arrays(leaves)

    def smallest(self, result: Any) -> Any:
        """The result that is least likely to be donated to the next call."""
        if isinstance(result, tuple) and self._smallest_part is not None:
            # Without a walk over hundreds of arrays, where it stands alone in the result.
            part = result[self._smallest_part] if self._smallest_part < len(result) else None
            if compat.is_waitable(part):
                return part
        leaves = self._jax.tree_util.tree_leaves(result)
        at = self._smallest
        if at is None or at >= len(leaves) or not compat.is_waitable(leaves[at]):
            arrays = [at for at, leaf in enumerate(leaves) if compat.is_waitable(leaf)]
            at = self._smallest = min(arrays, key=lambda at: leaves[at].size, default=None)
        if at is None:
            return None
        if isinstance(result, tuple):
            parts = [number for number, part in enumerate(result) if part is leaves[at]]
            self._smallest_part = parts[0] if parts else None
        return leaves[at]

    def was_updated(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether the first argument that is no batch holds other arrays than at the last step."""
        for name, value in _arguments(args, kwargs):
            if name != self._sample and (arrays := self._arrays_in(value)):
                if arrays[0] in self._parameters:
                    return False
                is_first = not len(self._parameters)
                self._parameters = _Arrays(arrays[:1])
                return not is_first
        return False

    def batch_shape(self, args: Args, kwargs: Kwargs) -> Shape | None:
        """The batch's shape in a clean step: of an argument that is one array at once."""
        if isinstance(self._sample, int) and self._sample < len(args):
            shape = getattr(args[self._sample], "shape", None)
            if type(shape) is tuple and shape:
                return shape
        return self._full_shape(args, kwargs)

    def _full_shape(self, args: Args, kwargs: Kwargs) -> Shape | None:
        if isinstance(self._sample, int):
            return self._shape_in(args[self._sample]) if self._sample < len(args) else None
        return self._shape_in(kwargs[self._sample]) if self._sample in kwargs else None

    def _batch_argument(
        self, held: dict[Argument, list[Any]], given_values: Sequence[tuple[Argument, Any]]
    ) -> Argument | None:
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
            if shapes[name] and not any(array in self._outputs for array in arrays)
        ]
        fresh = [
            name
            for name in given
            if not all(array in self._held.get(name, _Arrays()) for array in held[name])
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

    def _numpy_arguments(self, values: Sequence[tuple[Argument, Any]]) -> dict[str, _Numpy]:
        found = {}
        for position, value in values:
            leaves = self._jax.tree_util.tree_leaves(value)[:_MOST_LEAVES]
            arrays = [leaf for leaf in leaves if compat.is_numpy(leaf)]
            if not arrays:
                continue
            names = self.function.arguments
            is_known = isinstance(position, int) and position < len(names)
            name = names[int(position)] if is_known else str(position)
            copied = [array for array in arrays if compat.is_copied(self._jax, array)]
            before = self._numpy.get(name, _Numpy(0, _Arrays()))
            is_same = all(array in before.arrays for array in arrays)
            size = sum(array.nbytes for array in copied)
            copy_ns = before.copy_ns
            if is_same and copy_ns is None and size >= _LEAST_COPIED:
                copy_ns = compat.copy_ns(self._jax, copied)
            found[name] = _Numpy(size, _Arrays(arrays), is_same, copy_ns)
        return found

    def _compare_rows(self, values: Sequence[Any]) -> None:
        """Note whether this call and the one before were given rows of the same array of numpy."""
        whole = [value.base for value in values if compat.is_numpy(value) and _is_row(value)]
        same = [array for array in whole if array in self._whole]
        if same:
            self.samples = len(same[0])
        self._whole = _Arrays(whole)

    def _arrays_in(self, value: Any) -> list[Any]:
        return compat.leaves(self._jax, value)[:_MOST_LEAVES]

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


def _is_row(array: Any) -> bool:
    """Whether an array of numpy is one of several rows of another."""
    whole = array.base
    if not compat.is_numpy(whole) or not whole.ndim or len(whole) < 2:
        return False
    return array.shape in (whole.shape[1:], (1, *whole.shape[1:]))


def _arguments(args: Sequence[Any], kwargs: Kwargs) -> list[tuple[Argument, Any]]:
    return [*enumerate(args), *kwargs.items()]
