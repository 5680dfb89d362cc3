"""Instructions of a program that move its arguments in memory and compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boundby.capture.xplane.hlo import Module, Node

_UPDATE = "dynamic-update-slice"
# What leaves the elements of an array as they are.
_MOVES = {"parameter", "transpose", "copy", "bitcast", "reshape"}
_PASSED_ON = {"copy", "bitcast", "reshape"}
# Steps from an instruction back to an argument.
_FARTHEST = 4


def copies_argument(module: Module, node: Node) -> bool:
    """Whether it copies an argument, in order to change it."""
    return node.opcode == "copy" and any(map(module.is_argument, module.operands_of(node)))


def transposes_argument(module: Module, node: Node) -> bool:
    """Whether it only brings the elements of an argument into another order, or those of an
    argument that the program has updated in part."""
    return _only_transposes(module, node) and any(
        _is_of_argument(module, one, _FARTHEST) for one in module.operands_of(node)
    )


def _only_transposes(module: Module, node: Node) -> bool:
    if node.opcode != "fusion":
        return node.opcode == "transpose"
    opcodes = _opcodes(module, node)
    return "transpose" in opcodes and opcodes <= _MOVES


def _is_of_argument(module: Module, node: Node, farthest: int) -> bool:
    if module.is_argument(node):
        return True
    updates = node.opcode == _UPDATE or (
        node.opcode == "fusion" and _UPDATE in _opcodes(module, node)
    )
    if not farthest or not (updates or node.opcode in _PASSED_ON):
        return False
    # Of what an update reads, only the array that it changes is as large as its result.
    return any(
        _is_of_argument(module, one, farthest - 1)
        for one in module.operands_of(node)
        if _elements(one) == _elements(node)
    )


def _opcodes(module: Module, node: Node) -> set[str]:
    return {inner.opcode for called in module.called_by(node) for inner in called.nodes}


def _elements(node: Node) -> int:
    return sum(tensor.elements for tensor in node.results)
