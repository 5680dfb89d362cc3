"""Counts what one run of a step issues; nothing is timed here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from boundby.hardware.stopwatch import Workload

_VIEWS = {"view", "_unsafe_view", "t", "transpose", "detach", "expand", "alias", "unsqueeze"}


@dataclass(kw_only=True)
class Counts:
    """`operators` do work on the device; `views` are tensors that only the host handles.

    Each tensor of a list operator that one kernel processes counts as a view.
    """

    operators: int = 0
    views: int = 0
    bytes: int = 0


def count_operators(step: Workload) -> Counts:
    """Operators that one step dispatches, and the bytes they read and write."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    counts = Counts()

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            if function.namespace != "aten":
                return out
            if function.overloadpacket.__name__ in _VIEWS:
                counts.views += 1
                return out
            listed = args[0] if args and isinstance(args[0], list | tuple) else []
            if listed and listed[0].device.type == "cpu":
                # On a CPU a list operator runs one operator per tensor.
                counts.operators += len(listed)
            else:
                counts.operators += 1
                counts.views += len(listed)
            leaves = tree_leaves((args, kwargs, out))
            counts.bytes += sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes"))
            return out

    step()
    with Counter():
        step()
    return counts


def count_nodes(loss: Any) -> int:
    """Nodes that backward visits from here."""
    visited: set[Any] = set()
    pending = [loss.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in visited:
            visited.add(node)
            pending += [following for following, _ in node.next_functions]
    return len(visited)


def count_calls(step: Workload) -> int:
    """Functions that Python calls in one step, its own and those of others."""
    calls = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    step()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return calls
