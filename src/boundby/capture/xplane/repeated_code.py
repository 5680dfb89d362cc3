"""Code that a program contains many times: Python loops that tracing unrolls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from boundby.capture.kineto.names import clean
from boundby.capture.xplane.hlo import Module, Node
from boundby.capture.xplane.programs import kind_of, origin_of
from boundby.model.observation import RepeatedCode

# Fewer copies of a product are branches, heads or gates.
_FEWEST = 8
# Other operators of the same loop occur at least this share as often as the products.
_COPIES = 0.5
_PRODUCTS = ("dot", "convolution", "gemm")
# Instructions that only pass on an operand.
_PASSING = ("bitcast", "copy", "get-tuple-element", "reshape", "transpose", "convert", "tuple")


def repeated_code(module: Module) -> list[RepeatedCode]:
    """The loops of a program: operators of equal shape at one line.

    Dependent iterations are recognised by their products, independent ones by an array that all of
    them read: the weights, or the batch. Updates of equal parameters have none in common.
    """
    nodes = {node.id: node for node in module.entry.nodes}
    at_line: dict[tuple[str, str, object], list[Node]] = defaultdict(list)
    for node in module.entry.scheduled():
        origin = origin_of(module, node)
        if origin.source:
            kind = kind_of(module.instruction(node))
            key = (clean(origin.source), f"{origin.phase} {kind}", node.results)
            at_line[key].append(node)
    found: dict[str, RepeatedCode] = {}
    for (line, kind, _), copies in at_line.items():
        if len(copies) < _FEWEST:
            continue
        depends = _depends(copies[-1], copies[0], nodes)
        is_product = any(word in kind for word in _PRODUCTS)
        if not (is_product if depends else _shared(copies, nodes)):
            continue
        known = found.get(line)
        if known is None or known.count < len(copies):
            found[line] = RepeatedCode(
                program=module.name, line=line, count=len(copies), depends=depends
            )
    return [
        RepeatedCode(
            program=one.program,
            line=one.line,
            count=one.count,
            depends=one.depends,
            lines=_lines(at_line, one),
        )
        for one in found.values()
    ]


def _lines(at_line: dict[tuple[str, str, object], list[Node]], loop: RepeatedCode) -> list[str]:
    """All lines that the program contains about as often."""
    least, most = _COPIES * loop.count, loop.count / _COPIES
    return sorted({line for (line, *_), one in at_line.items() if least <= len(one) <= most})


def _depends(last: Node, first: Node, nodes: dict[int, Node]) -> bool:
    """Whether one instruction needs the result of another."""
    seen: set[int] = set()
    waiting = list(last.operands)
    while waiting:
        at = waiting.pop()
        if at == first.id:
            return True
        if at in nodes and at not in seen:
            seen.add(at)
            waiting += nodes[at].operands
    return False


def _shared(copies: Sequence[Node], nodes: dict[int, Node]) -> bool:
    """Whether all of them read the same array, which is more than a number."""
    common = set(_sources(copies[0].operands, nodes))
    for node in copies[1:]:
        common &= set(_sources(node.operands, nodes))
    return any(
        nodes[at].opcode != "constant" and any(tensor.shape for tensor in nodes[at].results)
        for at in common
        if at in nodes
    )


def _sources(operands: Iterable[int], nodes: dict[int, Node]) -> Iterable[int]:
    for at in operands:
        while at in nodes and nodes[at].opcode in _PASSING and len(nodes[at].operands) == 1:
            at = nodes[at].operands[0]
        yield at
