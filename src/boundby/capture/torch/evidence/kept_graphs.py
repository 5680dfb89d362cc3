"""Autograd graphs that stay alive from step to step, and the lines that keep them."""

from __future__ import annotations

import functools
import gc
import itertools
from collections import defaultdict, deque
from types import CodeType, FrameType
from typing import Any

from boundby.capture.torch.evidence.code_names import read_and_bound_at
from boundby.model.evidence import Growth

_MOST_NODES = 100_000  # time limit
_MOST_LINES = 3  # display limit


class KeptGraphs:
    """Call `line_ran` after each line of the script, `step_ended` at each step's end."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._nodes: list[int] = []
        self._lists: dict[int, tuple[Any, int]] = {}  # those of recorded tensors, and their lengths
        self._kept: dict[str, int] = defaultdict(int)

    def line_ran(self, line: str, frame: FrameType, number: int) -> None:
        """Note whether a line has added a recorded tensor to a list, or to an attribute."""
        for key, (held, known) in self._lists.items():
            if len(held) > known:
                self._kept[line] += 1
                self._lists[key] = held, len(held)
        holder = frame.f_locals.get("self")
        for name in _read_and_bound(frame.f_code, number) if holder is not None else ():
            one = getattr(holder, "__dict__", {}).get(name)
            if isinstance(one, self._torch.Tensor) and one.grad_fn is not None:
                self._kept[line] += 1

    def bound(self, line: str, name: str, frame: FrameType, number: int) -> None:
        """Note a recorded tensor that a line has bound in a function that runs for several steps:
        one that was called in this step ends with it."""
        if name in _read_and_bound(frame.f_code, number):
            self._kept[line] += 1

    def step_ended(self) -> None:
        tensor = self._torch.Tensor
        # Those that only this holds, of the step before, are not the script's to keep.
        self._lists.clear()
        waiting = []
        for one in gc.get_objects():
            if type(one) is tensor and one.grad_fn is not None:
                waiting.append(one.grad_fn)
            elif type(one) in (list, deque) and one and type(one[-1]) is tensor:
                nodes = [t.grad_fn for t in one if type(t) is tensor and t.grad_fn is not None]
                waiting += nodes
                if nodes:
                    self._lists[id(one)] = one, len(one)
        seen: set[int] = set()
        while waiting and len(seen) < _MOST_NODES:
            node = waiting.pop()
            number = node._sequence_nr()
            if number in seen:
                continue
            seen.add(number)
            waiting += [following for following, _ in node.next_functions if following is not None]
        self._nodes.append(len(seen))

    def growth(self) -> Growth | None:
        """Graphs that are alive at each step's end, more every time."""
        self._lists.clear()
        counts = self._nodes
        if len(counts) < 3:
            return None
        more = [after - before for before, after in itertools.pairwise(counts)]
        if min(more) <= 0 or max(more) > 2 * min(more) + 8:
            return None
        where = sorted(self._kept, key=lambda line: -self._kept[line])[:_MOST_LINES]
        return Growth(where=where, nodes_per_step=sum(more) / len(more))


@functools.cache
def _read_and_bound(code: CodeType, line: int) -> frozenset[str]:
    return frozenset(read_and_bound_at(code, line))
