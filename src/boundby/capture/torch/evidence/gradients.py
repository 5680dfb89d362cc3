"""Backwards: unused gradients, graphs kept without need, steps on gradients already used."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from boundby.capture.torch.evidence.places import user_lines
from boundby.capture.torch.evidence.values import fingerprint
from boundby.model.evidence import KeptGraph, RepeatedBackward, UnclearedSteps, UnusedGradients

_MOST_NODES = 200_000  # time limit
_MOST_SEQUENCE = 1 << 62  # leaves have the largest possible number


@dataclass(slots=True, kw_only=True)
class Backward:
    """One run of the engine. `below`: the nodes that each node leads to, `leaves` by node."""

    step: int
    where: list[str]
    retain: bool
    create: bool
    below: dict[int, set[int]] = field(default_factory=dict)
    leaves: dict[int, set[int]] = field(default_factory=dict)
    unused: set[int] = field(default_factory=set)  # parameters
    unowned: set[int] = field(default_factory=set)
    added_to: set[int] = field(default_factory=set)  # earlier backwards, by number
    made_until: int = -1  # of a recorded backward: the last node that it made


class GradientReader:
    """Records which gradients each backward computed and which optimizer used them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.step = 0
        self.backwards: list[Backward] = []
        # For each parameter: the parameter, the backwards that no step has used yet, how often it
        # was stepped since it was cleared, and its value when it was first seen.
        self._parameters: dict[int, weakref.ref[Any]] = {}
        self._pending: dict[int, list[int]] = {}
        self._stepped: dict[int, int] = {}
        self._values: dict[int, Any] = {}
        self._cleared: list[tuple[Backward, int]] = []  # gradients that no optimizer had used
        self._never_cleared: set[int] = set()  # their gradients grow with every backward
        self._owned: set[int] = set()
        self._cycles: list[int] = []
        self._optimizer_lines: list[str] = []

    def next_step(self) -> None:
        self.step += 1

    @property
    def used_nodes(self) -> set[int]:
        return {node for backward in self.backwards for node in backward.below}

    def begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`args`: the roots, their gradients, retain_graph, create_graph, inputs."""
        backward = Backward(
            step=self.step,
            where=user_lines(sys._getframe(2)),
            retain=len(args) > 2 and bool(args[2]),
            create=len(args) > 3 and bool(args[3]),
        )
        leaves = self._walk(args[0], backward)
        number = len(self.backwards)
        self.backwards.append(backward)
        if not kwargs.get("accumulate_grad") or (len(args) > 4 and args[4]):
            return
        for key, parameter in leaves.items():
            if key not in self._parameters:
                self._parameters[key] = weakref.ref(parameter)
                self._values[key] = fingerprint(self._torch, parameter)
                self._never_cleared.add(key)
            pending = self._pending.setdefault(key, [])
            if _is_clear(self._torch, parameter.grad):
                self._cleared += [(self.backwards[earlier], key) for earlier in pending]
                pending.clear()
                self._never_cleared.discard(key)
                if self._stepped.get(key, 0):
                    self._cycles.append(self._stepped[key])
                self._stepped[key] = 0
            backward.added_to.update(pending)
            pending.append(number)

    def ends(self) -> None:
        backward = self.backwards[-1]
        if backward.create:
            grads = [p.grad for p in self._alive() if p.grad is not None]
            numbers = [g.grad_fn._sequence_nr() for g in grads if g.grad_fn is not None]
            backward.made_until = max(numbers, default=-1)

    def optimizer_begins(self, optimizer: Any) -> None:
        lines = user_lines(sys._getframe(2))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._owned.add(id(parameter))
                if parameter.grad is None:
                    continue
                self._pending.pop(id(parameter), None)
                self._stepped[id(parameter)] = self._stepped.get(id(parameter), 0) + 1
                self._optimizer_lines = lines

    def end(self) -> None:
        """Find unused gradients after the last step: those of parameters that belong to no
        optimizer and that either nothing changes or whose gradients are never cleared, because they
        follow other weights."""
        optimizer_class = self._torch.optim.Optimizer
        for one in gc.get_objects():
            if issubclass(type(one), optimizer_class):
                self._owned |= {id(p) for group in one.param_groups for p in group["params"]}
        for backward, key in self._cleared:
            # Without an optimizer, the script may have used it for an update of its own.
            if key in self._owned:
                backward.unused.add(key)
        for key, reference in self._parameters.items():
            parameter = reference()
            if key in self._owned or parameter is None or self._values[key] is None:
                continue
            is_changed = fingerprint(self._torch, parameter) != self._values[key]
            if is_changed and key not in self._never_cleared:
                continue
            for backward in self.backwards:
                if any(key in found for found in backward.leaves.values()):
                    backward.unused.add(key)
                    backward.unowned.add(key)

    def unused(self, step: int, models: Sequence[Any] = ()) -> list[UnusedGradients]:
        """The unused gradients of a step's backwards; `models` give their parameters names."""
        rank = self._ranks(step)
        found = []
        for backward in self._of(step):
            # Above a leaf of which nothing is known, everything is in use.
            wasted, edges = _wasted(backward)
            if wasted:
                found.append(
                    UnusedGradients(
                        where=backward.where,
                        nodes=sorted(rank[node] for node in wasted),
                        edges=sorted(rank[node] for node in edges),
                        total=len(rank),
                        parameters=len(backward.unused),
                        unowned=bool(backward.unowned),
                        parts=list(_parts(models, backward.unused)),
                    )
                )
        return found

    def kept_graphs(self, step: int) -> list[KeptGraph]:
        found = []
        for at, backward in enumerate(self.backwards):
            if backward.step != step or not (backward.retain or backward.create):
                continue
            if not backward.below or (backward.create and backward.made_until < 0):
                continue
            later = self.backwards[at + 1 :]
            again = any(backward.below.keys() & one.below.keys() for one in later)
            last = max(backward.below)
            through = any(last < node <= backward.made_until for one in later for node in one.below)
            if not again and not (backward.create and through):
                found.append(KeptGraph(where=backward.where, create=backward.create))
        return found

    def repeated(self, step: int) -> list[RepeatedBackward]:
        """Backwards through the graph of an earlier one, which add to the same gradients."""
        rank, found = self._ranks(step), []
        for backward in self._of(step):
            for number in sorted(backward.added_to):
                first = self.backwards[number]
                shared = first.below.keys() & backward.below.keys()
                if first.step == step and first.retain and shared:
                    nodes = sorted(rank[node] for node in shared)
                    found.append(
                        RepeatedBackward(
                            where=backward.where, first=first.where, nodes=nodes, total=len(rank)
                        )
                    )
                    break
        return found

    def _ranks(self, step: int) -> dict[int, int]:
        """The nodes of a step's graphs, counted in the order in which the forward made them."""
        order = sorted({node for one in self._of(step) for node in one.below})
        return {node: at for at, node in enumerate(order)}

    @property
    def waits_for_clearing(self) -> bool:
        """Whether an optimizer still steps on gradients that it has used already, and their
        clearing has not been seen."""
        on_used = any(count > 1 for count in self._stepped.values())
        return on_used and not any(count > 1 for count in self._cycles)

    def uncleared(self) -> UnclearedSteps | None:
        """The optimizer's steps between two clearings, if several. The first cycle of each
        parameter is left out, because it may have begun before it was observed."""
        if not self._cycles or max(self._cycles) <= 1:
            return None
        return UnclearedSteps(where=self._optimizer_lines, steps_per_clear=max(self._cycles))

    def _of(self, step: int) -> list[Backward]:
        return [one for one in self.backwards if one.step == step]

    def _alive(self) -> list[Any]:
        found = [reference() for reference in self._parameters.values()]
        return [one for one in found if one is not None]

    def _walk(self, roots: Any, backward: Backward) -> dict[int, Any]:
        """Add the graph below the roots; return its parameters."""
        leaves: dict[int, Any] = {}
        first = [one.grad_fn for one in roots if getattr(one, "grad_fn", None) is not None]
        waiting = list(first)
        while waiting and len(backward.below) < _MOST_NODES:
            node = waiting.pop()
            number = node._sequence_nr()
            if number in backward.below:
                continue
            below = backward.below[number] = set()
            for following, _ in node.next_functions:
                if following is None:
                    continue
                variable = getattr(following, "variable", None)
                if variable is not None:
                    leaves[id(variable)] = variable
                    backward.leaves.setdefault(number, set()).add(id(variable))
                elif following._sequence_nr() < _MOST_SEQUENCE:
                    below.add(following._sequence_nr())
                    waiting.append(following)
        return leaves


def _parts(models: Iterable[Any], parameters: set[int]) -> Iterator[str]:
    """The largest parts of models all of whose parameters are among these, by name."""
    for model in models:
        inside: list[str] = []
        for name, part in model.named_modules():
            held = {id(one) for one in part.parameters()}
            if held and held <= parameters and not name.startswith(tuple(inside)):
                inside.append(f"{name}." if name else "")
                yield name or type(model).__name__


def _wasted(backward: Backward) -> tuple[set[int], set[int]]:
    """Nodes that lead to unused gradients alone; used nodes that lead to such a node."""
    needed: dict[int, bool] = {}
    # A node is made after those that it leads to.
    for node in sorted(backward.below):
        leaves = backward.leaves.get(node, set())
        below = backward.below[node]
        needed[node] = (
            bool(leaves - backward.unused)
            or any(needed.get(one, True) for one in below)
            or not (leaves or below)
        )
    wasted = {node for node, is_needed in needed.items() if not is_needed}
    edges = {node for node in needed if needed[node] and backward.below[node] & wasted}
    return wasted, edges


def _is_clear(torch: Any, gradient: Any) -> bool:
    if gradient is None:
        return True
    if gradient.layout != torch.strided:
        return False
    with torch.no_grad():
        return not bool(gradient.detach().any())
