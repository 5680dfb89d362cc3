"""The operators that ran while a graph was captured, from what torch's execution observer wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.kineto.arguments import dtype
from boundby.capture.kineto.names import clean
from boundby.model import Argument, OpCall, Tensor

_NONE = "<None>"
# What a tensor's values are: itself, its storage, offset, elements, their size, its device.
_STORAGE, _DEVICE, _PARTS = 1, 5, 6
_LIST = "GenericList["


class _Given(msgspec.Struct, frozen=True, gc=False):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []


class _Node(msgspec.Struct, frozen=True, gc=False):
    id: int
    name: str
    parent: int = msgspec.field(name="ctrl_deps")
    inputs: _Given = _Given()
    outputs: _Given = _Given()


class _File(msgspec.Struct, frozen=True):
    nodes: list[_Node]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, or one kernel of a compiler's; `parent` is the place of the one around it."""

    name: str
    call: OpCall
    parent: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The operators of one captured graph, in the order in which they began."""

    operators: tuple[Operator, ...]


def read(path: Path, accelerator: str = "cuda") -> Recording | None:
    """One recording; None where it is gone or was cut off."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    return parse(text, accelerator)


def parse(text: bytes, accelerator: str = "cuda") -> Recording | None:
    """What touched the accelerator; None where the text was cut off or is no recording."""
    try:
        nodes = msgspec.json.decode(text, type=_File).nodes
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    # Nodes are written when they end, and numbered when they begin.
    nodes = sorted((node for node in nodes if node.id), key=lambda node: node.id)
    place: dict[int, int] = {}
    operators: list[Operator] = []
    for node in nodes:
        around = place.get(node.parent, -1)
        if not _is_on(accelerator, node):
            place[node.id] = around
            continue
        place[node.id] = len(operators)
        name = clean(node.name)
        operators.append(Operator(name, OpCall(name=name, args=_arguments(node.inputs)), around))
    return Recording(tuple(operators))


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
            shape=tuple(shape or ()),
            dtype=element,
            strides=tuple(strides or ()),
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


def _inner(kind: str) -> list[str]:
    return kind[len(_LIST) : -1].split(",")


def _at(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list) and index < len(values) else None
