"""One source file as a concrete syntax tree; edits are collected and applied together.

Everything that is not edited stays as it is, byte for byte: comments, line ends, encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import libcst as cst
from libcst import metadata

# A statement line, or a compound statement.
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Block = cst.Module | cst.IndentedBlock
Change = Callable[[Any], Any]
_Node = TypeVar("_Node", bound=cst.CSTNode)


class CannotWriteError(Exception):
    """Why a fix cannot be written into the source."""


class SourceFile:
    """The tree of a file, which of its lines ran, and what is to be changed."""

    def __init__(self, path: Path, executed: Collection[int]) -> None:
        self.path = path
        self.before = path.read_bytes()
        wrapper = metadata.MetadataWrapper(cst.parse_module(self.before), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._executed = frozenset(executed)
        self._places = wrapper.resolve(metadata.PositionProvider)
        self._parents = wrapper.resolve(metadata.ParentNodeProvider)
        self._names = wrapper.resolve(metadata.QualifiedNameProvider)
        self._changes: dict[cst.CSTNode, list[Change]] = {}
        self._above: dict[cst.CSTNode, list[Statement]] = {}
        self._below: dict[cst.CSTNode, list[Statement]] = {}
        self._wraps: dict[cst.CSTNode, list[tuple[int, int, str]]] = {}
        self._nodes = list(_walk(self.module))

    # Reading

    def lines_of(self, node: cst.CSTNode) -> range:
        place = self._places[node]
        return range(place.start.line, place.end.line + 1)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes that contain it, innermost first."""
        parent = self._parents.get(node)
        while parent is not None:
            yield parent
            parent = self._parents.get(parent)

    def find(self, kind: type[_Node]) -> Iterator[_Node]:
        return (node for node in self._nodes if isinstance(node, kind))

    def executed_calls(self) -> Iterator[cst.Call]:
        return (call for call in self.find(cst.Call) if self.is_executed(call))

    def full_name(self, node: cst.CSTNode) -> str:
        """The name with imports resolved: `torch.optim.AdamW`; empty if it is not a name."""
        found = self._names.get(node)
        names = found() if callable(found) else found
        return min((one.name for one in names or ()), default="")

    def statement(self, node: cst.CSTNode) -> Statement:
        """The statement that contains a node, or is it."""
        for ancestor in (node, *self.above(node)):
            if isinstance(ancestor, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                return ancestor
        raise CannotWriteError("it is written in one line with a loop or a condition")

    def statements_at(self, line: int) -> Statement | None:
        """The innermost statement that covers a line."""
        return min(
            (
                node
                for node in self._nodes
                if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
                and line in self.lines_of(node)
            ),
            key=lambda node: len(self.lines_of(node)),
            default=None,
        )

    def is_executed(self, node: cst.CSTNode) -> bool:
        """Whether any line of an expression or of a simple statement was executed."""
        return not self._executed.isdisjoint(self.lines_of(node))

    def is_fully_executed(self, statement: cst.CSTNode) -> bool:
        """Whether all statements in it were executed, except those without code."""
        if isinstance(statement, cst.SimpleStatementLine):
            return self.is_executed(statement) or all(map(_has_no_code, statement.body))
        first_line = self._places[statement].start.line
        if not isinstance(statement, cst.Try) and first_line not in self._executed:
            return False
        return all(self.is_fully_executed(inner) for inner in inner_statements(statement))

    # Editing

    def change(self, node: cst.CSTNode, change: Change) -> None:
        """Replace an executed node by the result of `change`."""
        if not self.is_executed(node):
            raise CannotWriteError(
                f"line {self.lines_of(node).start} of {self.path.name} never ran"
            )
        self._changes.setdefault(node, []).append(change)

    def insert_above(self, statement: Statement, *lines: str) -> None:
        self._above.setdefault(statement, []).extend(self.parsed(*lines))

    def insert_below(self, statement: Statement, *lines: str) -> None:
        self._check_in_block(statement)
        self._below.setdefault(statement, []).extend(self.parsed(*lines))

    def wrap(self, first: Statement, last: Statement, context: str) -> None:
        """Put statements of one block under a `with` of this context manager.

        Those that overlap have to contain one another. What is under the same one is left.
        """
        block = self._check_in_block(first)
        body = list(block.body)
        start, end = _index(body, first), _index(body, last)
        others = self._wraps.setdefault(block, [])
        for other_start, other_end, other in others:
            is_apart = end < other_start or other_end < start
            is_inside = other_start <= start and end <= other_end
            if is_inside and other == context:
                return
            if not (is_apart or is_inside or (start <= other_start and other_end <= end)):
                raise CannotWriteError("another fix surrounds some of the same statements")
        others.append((start, end, context))

    def added(self) -> Iterator[Statement]:
        """The statements that are to be inserted."""
        for edits in (self._above, self._below):
            for statements in edits.values():
                yield from statements

    def added_below(self, statement: Statement) -> list[Statement]:
        return self._below.get(statement, [])

    def parsed(self, *lines: str) -> list[Statement]:
        config = self.module.config_for_parsing
        return [cst.parse_statement(line, config=config) for line in lines]

    def snapshot(self) -> Callable[[], None]:
        """Returns a function that removes all later edits."""
        edits = (self._changes, self._above, self._below, self._wraps)
        copies = [{node: list(changes) for node, changes in edit.items()} for edit in edits]

        def restore() -> None:
            for edit, before in zip(edits, copies, strict=True):
                cast(dict[Any, Any], edit).clear()
                cast(dict[Any, Any], edit).update(before)

        return restore

    def after(self) -> bytes:
        """The content with all edits; raises a `SyntaxError` if they broke it."""
        if not (self._changes or self._above or self._below or self._wraps):
            return self.before
        module = self.module.visit(_Editor(self._changes, self._above, self._below, self._wraps))
        assert isinstance(module, cst.Module)
        content = module.bytes
        compile(content, str(self.path), "exec", dont_inherit=True)
        return content

    def _check_in_block(self, statement: Statement) -> Block:
        block = self._parents.get(statement)
        if not isinstance(block, (cst.Module, cst.IndentedBlock)):
            raise CannotWriteError("it is written in one line with a loop or a condition")
        return block


class _Editor(cst.CSTTransformer):
    def __init__(
        self,
        changes: dict[cst.CSTNode, list[Change]],
        above: dict[cst.CSTNode, list[Statement]],
        below: dict[cst.CSTNode, list[Statement]],
        wraps: dict[cst.CSTNode, list[tuple[int, int, str]]],
    ) -> None:
        super().__init__()
        self._changes, self._above, self._below, self._wraps = changes, above, below, wraps

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        for change in self._changes.get(original_node, ()):
            updated_node = change(updated_node)
        if isinstance(original_node, (cst.Module, cst.IndentedBlock)):
            return self._rebuilt(original_node, updated_node)
        return updated_node

    def _rebuilt(self, original: Block, updated: Any) -> Any:
        """A block with its inserted and wrapped statements."""
        parts = [
            [
                *_at_top(self._above.get(before, []), after, is_first=place == 0),
                *self._below.get(before, []),
            ]
            for place, (before, after) in enumerate(zip(original.body, updated.body, strict=True))
        ]
        wraps = self._wraps.get(original, [])
        if not wraps and all(len(part) == 1 for part in parts):
            return updated
        return updated.with_changes(body=_wrapped(parts, wraps, 0, len(parts) - 1))


def _wrapped(
    parts: Sequence[Sequence[Statement]], wraps: Sequence[tuple[int, int, str]], at: int, last: int
) -> list[Statement]:
    """The statements from `at` to `last` with these wraps, the widest outermost."""
    body: list[Statement] = []
    while at <= last:
        end = max((end for start, end, _ in wraps if start == at and end <= last), default=None)
        if end is None:
            body += parts[at]
            at += 1
            continue
        here = [context for start, stop, context in wraps if (start, stop) == (at, end)]
        inner = [wrap for wrap in wraps if wrap[:2] != (at, end)]
        body.append(_under(f"with {', '.join(here)}:", _wrapped(parts, inner, at, end)))
        at = end + 1
    return body


def _at_top(added: list[Statement], statement: Any, *, is_first: bool) -> list[Any]:
    """Keep the blank lines and comments above a statement above what is inserted there."""
    if not added:
        return [statement]
    comments = [line for line in statement.leading_lines if line.comment is not None]
    blank = [line for line in statement.leading_lines if line.comment is None]
    first = added[0].with_changes(leading_lines=[] if is_first else blank)
    return [first, *added[1:], statement.with_changes(leading_lines=comments)]


def _under(header: str, statements: Sequence[Any]) -> Statement:
    """Statements as the body of a `with`; what precedes the first of them stays above it."""
    leading = statements[0].leading_lines
    first = statements[0].with_changes(leading_lines=[])
    block = cst.IndentedBlock(body=[first, *statements[1:]])
    compound = cst.parse_statement(f"{header}\n    pass\n")
    return compound.with_changes(body=block, leading_lines=leading)


def blocks_of(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """The blocks of a compound statement, with those of its `else`, `except` and `finally`."""
    blocks: list[cst.CSTNode] = []
    for child in statement.children:
        if isinstance(child, (cst.IndentedBlock, cst.SimpleStatementSuite)):
            blocks.append(child)
        elif isinstance(child, (cst.Else, cst.If, cst.ExceptHandler, cst.Finally, cst.MatchCase)):
            blocks += blocks_of(child)
    return blocks


def inner_statements(statement: cst.CSTNode) -> list[cst.CSTNode]:
    return [inner for block in blocks_of(statement) for inner in _body(block)]


def _body(block: cst.CSTNode) -> list[cst.CSTNode]:
    # The parts of a suite are small statements: they run if its line does.
    return list(block.body) if isinstance(block, cst.IndentedBlock) else []


def _has_no_code(small: cst.BaseSmallStatement) -> bool:
    """Statements without code, so that their lines never count as executed."""
    if isinstance(small, cst.Expr):
        return isinstance(small.value, (cst.BaseString, cst.BaseNumber, cst.Ellipsis))
    if isinstance(small, cst.AnnAssign):
        return small.value is None
    return isinstance(small, (cst.Global, cst.Nonlocal, cst.Pass))


def _index(body: Sequence[cst.CSTNode], node: cst.CSTNode) -> int:
    return next(place for place, other in enumerate(body) if other is node)


def _walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _walk(child)
