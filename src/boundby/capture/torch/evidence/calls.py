"""Calls of modules: the same forward run again, results that nothing reads, graphs that no backward
uses."""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from boundby.capture.torch.evidence.item_loops import items_around
from boundby.capture.torch.evidence.places import user_line, user_lines
from boundby.capture.torch.evidence.unread_results import is_unread
from boundby.capture.torch.evidence.values import fingerprint, tensors_in
from boundby.model.evidence import (
    GrowingInput,
    ModuleCall,
    RepeatedCall,
    SingleSamples,
    UnreadResult,
    UnusedGraph,
)
from boundby.runtime.modules import buffers_of, parameters_of, parts_of

_MOST_CALLS = 20_000  # memory limit
_FEWEST_ITEMS = 4  # shorter lists are not reported
_FEWEST_GROWING = 2  # calls that extend the input of the one before


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a module that has parameters."""

    key: int
    call: ModuleCall
    step: int
    training: bool
    inputs: tuple[Any, ...] | None
    weights: int
    parent: Call | None
    roots: set[int] = field(default_factory=set)  # the nodes of its results
    inner: set[int] = field(default_factory=set)  # and the nodes of the calls inside it
    result: tuple[Any, ...] | None = None
    row: _Row | None = None  # of a larger tensor, if that is its only input
    rows: int = 0  # of the first input
    items: int = 0  # how many the loop around the call has, if it handles one at a time
    grows: bool = False  # the last call's input is the beginning of this one's
    buffers: int = 0  # their versions before the call
    unread: bool = False
    changes: bool = False


class _Row(NamedTuple):
    """One row of a tensor: the memory of the tensor, its number of rows, and which row it is."""

    memory: int
    rows: int
    number: int


class CallReader:
    """Follows modules by torch's global hooks, which the script's modules do not see."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._open: list[Call | None] = []
        self._known: dict[int, bool] = {}
        self._counts: dict[tuple[str, str], int] = defaultdict(int)
        self._inputs: dict[int, Any] = {}  # the print of each outermost module's last input
        self._models: dict[int, weakref.ref[Any]] = {}
        self.calls: list[Call] = []
        self.step = 0
        self.in_backward = False

    def next_step(self) -> None:
        self.step += 1
        self._counts.clear()

    def begins(self, module: Any, args: tuple[Any, ...]) -> None:
        torch = self._torch
        if self.in_backward or len(self.calls) >= _MOST_CALLS or not self._has_weights(module):
            self._open.append(None)
            return
        where = user_lines(sys._getframe(2))
        name = type(module).__name__
        place = (name, where[0] if where else "")
        call = ModuleCall(module=name, occurrence=self._counts[place], where=where)
        self._counts[place] += 1
        tensors = tensors_in(torch, args) or tensors_in(torch, _keywords(sys._getframe(2)))
        prints = [fingerprint(torch, one) for one in tensors]
        parent = next((one for one in reversed(self._open) if one is not None), None)
        opened = Call(
            key=id(module),
            call=call,
            step=self.step,
            training=bool(module.training),
            inputs=tuple(prints) if prints and None not in prints else None,
            weights=sum(_version(p) for p in parameters_of(module)),
            parent=parent,
        )
        self._open.append(opened)
        # Sparse tensors and subclasses have no such memory or values.
        if parent is None:
            self._models[id(module)] = weakref.ref(module)
        if parent is None and None not in prints and tensors:
            opened.row = _row_of(tensors)
            opened.rows = int(tensors[0].shape[0]) if tensors[0].dim() else 0
            if opened.rows == 1:
                opened.items = items_around(_caller(sys._getframe(2)))
            opened.grows = self._extends(id(module), tensors[0])
            self._inputs[id(module)] = prints[0]
            opened.unread = is_unread(_caller(sys._getframe(2))) and not _keeps_results(module)
            opened.buffers = _versions_of_buffers(module)

    def ends(self, module: Any, result: Any) -> None:
        call = self._open.pop() if self._open else None
        if call is None:
            return
        call.changes = call.unread and call.buffers != _versions_of_buffers(module)
        tensors = tensors_in(self._torch, result)
        call.roots = {one.grad_fn._sequence_nr() for one in tensors if one.grad_fn is not None}
        prints = [fingerprint(self._torch, one) for one in tensors]
        call.result = tuple(prints) if prints and None not in prints else None
        if call.parent is not None:
            call.parent.inner |= call.roots | call.inner
        self.calls.append(call)

    def _extends(self, key: int, given: Any) -> bool:
        """Whether this input is the last one of the same module and one position more."""
        last = self._inputs.get(key)
        if last is None or given.dim() < 2 or given.shape[1] < 2:
            return False
        before = given.detach()[:, :-1]
        if last[:2] != (tuple(before.shape), str(before.dtype)):
            return False
        return bool(fingerprint(self._torch, before) == last)

    def _has_weights(self, module: Any) -> bool:
        known = self._known.get(id(module))
        if known is None:
            known = next(parameters_of(module), None) is not None
            self._known[id(module)] = known
        return known

    def models(self) -> list[Any]:
        """The outermost modules that were called."""
        found = [one() for one in self._models.values()]
        return [one for one in found if one is not None]

    def lines(self) -> set[str]:
        """Lines that call modules, directly or not."""
        return {line for call in self.calls for line in call.call.where}

    def has_fixed_inputs(self) -> bool:
        """Whether every step gave the outermost modules the same inputs: then they are not real
        data."""
        steps: dict[int, list[Any]] = defaultdict(list)
        for call in self.calls:
            if call.parent is None:
                steps[call.step].append(call.inputs)
        return len(steps) > 1 and all(one == steps[min(steps)] for one in steps.values())

    def lines_of_changing_inputs(self) -> set[str]:
        """Lines that lead to a call whose inputs were not the same in every step."""
        inputs: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
        for one in self.calls:
            inputs[one.call.module, one.call.occurrence, *one.call.where].add(one.inputs)
        changing = (key for key, seen in inputs.items() if len(seen) > 1 or None in seen)
        return {line for _, _, *lines in changing for line in lines}

    def single_samples(self) -> SingleSamples | None:
        """The model of which at least half of the calls follow a call on another row of the same
        tensor, or handle one item of a list."""
        for calls in self._outermost().values():
            pairs = [(one.row, other.row) for one, other in pairwise(calls)]
            follow = sum(a is not None and b is not None and _is_beside(a, b) for a, b in pairs)
            row = calls[-1].row
            if row is not None and follow and 2 * follow >= len(pairs):
                return SingleSamples(where=calls[-1].call.where, samples=row.rows)
            listed = [one.items for one in calls if one.items >= _FEWEST_ITEMS]
            if 2 * len(listed) >= len(calls) and len(calls) > 1:
                return SingleSamples(where=calls[-1].call.where, samples=listed[-1])
        return None

    def growing_input(self) -> GrowingInput | None:
        """The model of which most calls get the input of the call before and one position more."""
        for calls in self._outermost().values():
            growing = sum(one.grows for one in calls)
            if growing >= _FEWEST_GROWING and 2 * growing >= len(calls) - 1:
                last = calls[-1]
                return GrowingInput(module=last.call.module, where=last.call.where, rows=last.rows)
        return None

    def unread_results(self, step: int, used: set[int]) -> list[UnreadResult]:
        """Outermost calls whose result neither the script nor a backward reads."""
        return [
            UnreadResult(call=one.call, changes=one.changes)
            for one in self._of(step)
            if one.unread and not (one.roots | one.inner) & used
        ]

    def _outermost(self) -> dict[int, list[Call]]:
        """The outermost calls, by module."""
        found: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.parent is None:
                found[call.key].append(call)
        return found

    def repeated(self, step: int, used: set[int]) -> list[RepeatedCall]:
        """Calls of the step with the inputs of an earlier one in it, or of the module's last one.

        A step may end between the two, for example if a metric is computed after the update.
        """
        firsts: dict[tuple[Any, ...], Call] = {}
        last: dict[int, Call] = {}
        found: list[RepeatedCall] = []
        repeats: set[int] = set()
        for call in sorted(self.calls, key=_depth):
            if call.inputs is None or (call.parent is not None and id(call.parent) in repeats):
                repeats.add(id(call))
                continue
            key = (call.step, call.key, call.inputs, call.training)
            before = last.get(call.key)
            last[call.key] = call
            first = firsts.setdefault(key, call)
            if first is call:
                if before is None or (before.inputs, before.training) != key[2:]:
                    continue
                first = before
            same = first.result is not None and first.result == call.result
            is_used = bool((call.roots | call.inner) & used)
            # If only the first one is for a metric, it is the first that repeats the needed one.
            if (same or not is_used) and not (same and is_used and first.step != call.step):
                repeats.add(id(call))
            elif same and not (first.roots | first.inner) & used:
                call, first = first, call
            else:
                continue
            if call.step == step:
                found.append(
                    RepeatedCall(
                        call=call.call,
                        first=first.call,
                        same=same,
                        updated=first.weights != call.weights,
                        recorded=bool(call.roots),
                    )
                )
        return found

    def unused_graphs(self, step: int, used: set[int]) -> list[UnusedGraph]:
        """The outermost calls whose recorded graph was not used."""
        found: list[UnusedGraph] = []
        covered: set[int] = set()
        for call in sorted(self._of(step), key=_depth):
            nodes = call.roots | call.inner
            if call.parent is not None and id(call.parent) in covered:
                covered.add(id(call))
            elif nodes and not nodes & used:
                covered.add(id(call))
                found.append(UnusedGraph(call=call.call, training=call.training))
        return found

    def _of(self, step: int) -> list[Call]:
        return [call for call in self.calls if call.step == step]


def _depth(call: Call) -> int:
    depth, around = 0, call.parent
    while around is not None:
        depth, around = depth + 1, around.parent
    return depth


def _version(parameter: Any) -> int:
    return 0 if parameter.is_inference() else int(parameter._version)


def _versions_of_buffers(module: Any) -> int:
    return sum(_version(one) for one in buffers_of(module))


def _keeps_results(module: Any) -> bool:
    """Whether the call may leave something behind: hooks that see results, tensors among the
    attributes."""
    return any(
        one._forward_hooks or any(hasattr(value, "grad_fn") for value in vars(one).values())
        for one in parts_of(module)
    )


def _caller(frame: Any) -> Any:
    """The frame that called the module itself; None if a library did so for the script."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name != "torch.nn.modules.module" and not name.startswith("boundby."):
            return frame if user_line(frame.f_code, frame.f_lineno) is not None else None
        frame = frame.f_back
    return None


def _keywords(frame: Any) -> Any:
    """The keyword arguments of a module's call, which its global hooks do not get."""
    for _ in range(3):
        if frame is None:
            return {}
        if frame.f_code.co_name == "_call_impl":
            return frame.f_locals.get("kwargs", {})
        frame = frame.f_back
    return {}


def _row_of(tensors: list[Any]) -> _Row | None:
    """The row of a larger tensor that the only tensor argument is a view of; None if it is none."""
    if len(tensors) != 1:
        return None
    one = tensors[0]
    if one.dim() < 2 or one.shape[0] != 1 or not one.is_floating_point():
        return None
    if not one.is_contiguous():
        return None
    size, whole = one.numel() * one.element_size(), one.untyped_storage().nbytes()
    offset = one.storage_offset() * one.element_size()
    if not size or whole < 2 * size or whole % size or offset % size:
        return None
    memory = one.untyped_storage().data_ptr()
    return _Row(memory=memory, rows=whole // size, number=offset // size)


def _is_beside(one: _Row, other: _Row) -> bool:
    """Whether they are two rows of one tensor."""
    return one[:2] == other[:2] and one.number != other.number
