"""The operators that ran while a graph was captured, from what torch's execution observer wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.kineto.arguments import dtype
from boundby.capture.kineto.names import Origin, clean, frame_of
from boundby.model import Argument, OpCall, Phase, Tensor

_NONE = "<None>"
_BACKWARD = 1  # the scope of a node of the backward
# The entries of a tensor's values: itself, its storage, offset, elements, their size, its device.
_STORAGE, _DEVICE, _PARTS = 1, 5, 6
_LIST = "GenericList["


class _Given(msgspec.Struct, frozen=True, gc=False):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []


class _Attribute(msgspec.Struct, frozen=True, gc=False):
    name: str
    value: Any = None


class _Node(msgspec.Struct, frozen=True, gc=False):
    id: int
    name: str
    parent: int = msgspec.field(name="ctrl_deps")
    inputs: _Given = _Given()
    outputs: _Given = _Given()
    attrs: list[_Attribute] = []

    def attribute(self, name: str) -> Any:
        return next((one.value for one in self.attrs if one.name == name), None)


class _File(msgspec.Struct, frozen=True):
    nodes: list[_Node]


class _Stacks(msgspec.Struct, frozen=True):
    """Stacks, innermost function first, and the stack of each operator."""

    stacks: list[list[str]] = []
    called: dict[int, int] = {}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, or one kernel of a compiler's; `parent` is the index of the one around it.

    `source` is the user's line it came from; for a backward operator its forward's. `kernels` are
    the names and launch shapes of those that it is known to have launched.
    """

    name: str
    call: OpCall
    parent: int
    source: str | None = None
    module: str | None = None
    phase: int = Phase.OTHER
    kernels: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Recording:
    """The operators of one captured graph, in the order in which they began.

    `captures`: if launches were recorded, for each capture the operator of each launch, in order;
    -1 is none. A replay runs the same launches in the same order.
    """

    operators: tuple[Operator, ...]
    captures: tuple[tuple[int, ...], ...] = ()


def read(path: Path, accelerator: str = "cuda") -> Recording | None:
    """One recording, with its stacks; None if it is missing or truncated."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    try:
        stacks = msgspec.json.decode(path.with_suffix(".stacks").read_bytes(), type=_Stacks)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        stacks = _Stacks()
    return parse(text, accelerator, stacks)


def parse(
    text: bytes, accelerator: str = "cuda", stacks: _Stacks | None = None
) -> Recording | None:
    """The operators with accelerator tensors; None if the text is truncated or no recording."""
    try:
        nodes = msgspec.json.decode(text, type=_File).nodes
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    # Nodes are written when they end, and numbered when they begin.
    nodes = sorted((node for node in nodes if node.id), key=lambda node: node.id)
    lines = _lines(nodes, stacks or _Stacks())
    place: dict[int, int] = {}
    operators: list[Operator] = []
    for node in nodes:
        around = place.get(node.parent, -1)
        if not _is_on(accelerator, node):
            place[node.id] = around
            continue
        place[node.id] = len(operators)
        name = clean(node.name)
        call = OpCall(name=name, args=_arguments(node.inputs))
        operators.append(Operator(name, call, around, lines.get(node.id)))
    return Recording(tuple(operators))


def _lines(nodes: Sequence[_Node], stacks: _Stacks) -> dict[int, str]:
    """The user's line of each node."""
    of_stack = [_line(stack) for stack in stacks.stacks]
    forward: dict[int, str] = {}  # by sequence number
    backward: dict[int, str | None] = {}  # by node, of those inside a backward one
    found: dict[int, str] = {}
    for node in nodes:
        stack = stacks.called.get(node.attribute("rf_id"), -1)
        line = of_stack[stack] if 0 <= stack < len(of_stack) else None
        sequence = node.attribute("seq_id")
        if node.attribute("scope") == _BACKWARD:
            backward[node.id] = forward.get(sequence)
        elif node.parent in backward:
            backward[node.id] = backward[node.parent]
        elif line is not None and sequence is not None and sequence >= 0:
            forward.setdefault(sequence, line)
        # A backward without a known forward gets the line that called it.
        line = backward.get(node.id) or line
        if line is not None:
            found[node.id] = line
    return found


def _line(stack: Sequence[str]) -> str | None:
    frames = map(frame_of, stack)
    return next((frame.source for frame in frames if frame.origin is Origin.USER), None)


def _is_on(accelerator: str, node: _Node) -> bool:
    return any(
        device.startswith(accelerator)
        for given in (node.inputs, node.outputs)
        for value, kind in zip(given.values, given.types, strict=False)
        for device in _devices(value, kind)
    )


def _devices(value: Any, kind: str) -> list[str]:
    if kind.startswith("Tensor") and isinstance(value, list) and len(value) == _PARTS:
        return [str(value[_DEVICE])]
    if kind.startswith(_LIST) and isinstance(value, list):
        pairs = zip(value, _inner(kind), strict=False)
        return [device for one, its in pairs for device in _devices(one, its)]
    return []


def _arguments(given: _Given) -> tuple[Argument, ...]:
    return tuple(
        _argument(value, kind, _at(given.shapes, index), _at(given.strides, index))
        for index, (value, kind) in enumerate(zip(given.values, given.types, strict=False))
    )


def _argument(value: Any, kind: str, shape: Any, strides: Any) -> Argument:
    if kind.startswith("Tensor("):
        element = dtype(kind[len("Tensor(") : -1])
        if element is None or not isinstance(value, list) or len(value) != _PARTS:
            return None
        return Tensor(
            shape=_extents(shape),
            dtype=element,
            strides=_extents(strides),
            storage=value[_STORAGE] or None,
        )
    if kind.startswith(_LIST) and isinstance(value, list):
        return tuple(
            _argument(one, its, _at(shape, index), _at(strides, index))
            for index, (one, its) in enumerate(zip(value, _inner(kind), strict=False))
        )
    if isinstance(value, str):
        return None if value == _NONE else clean(value)
    return value if isinstance(value, (bool, int, float)) else None


def _extents(values: Any) -> tuple[int, ...]:
    """Empty for a tensor of tensors, whose extents are lists themselves."""
    given = values if isinstance(values, list) else []
    return tuple(given) if all(isinstance(extent, int) for extent in given) else ()


def _inner(kind: str) -> list[str]:
    return kind[len(_LIST) : -1].split(",")


def _at(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list) and index < len(values) else None
