"""A script's text with its syntax tree, to be edited at places that the tree names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


class Source:
    """Edits are gathered and made at once, so that the tree's places stay true."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._content = text.encode()
        self._starts = [0]
        for line in self._content.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, bytes]] = []

    def edited(self) -> str:
        """The text with all edits; a `SyntaxError` where they broke it."""
        content = self._content
        for start, end, new in sorted(self._edits, reverse=True):
            content = content[:start] + new + content[end:]
        text = content.decode()
        ast.parse(text)
        return text

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of functions, classes or methods with these last names.

        Not those with keywords from a dictionary: it may hold the very one that is to be added.
        """
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or last_name(node.func) not in names:
                continue
            if all(keyword.arg is not None for keyword in node.keywords):
                yield node

    def bodies(self) -> Iterator[list[ast.stmt]]:
        """Every list of statements, the outermost first."""
        for node in ast.walk(self.tree):
            for field in ("body", "orelse", "finalbody"):
                body = getattr(node, field, None)
                if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                    yield body

    def set_keywords(
        self, call: ast.Call, values: Mapping[str, str], drop: tuple[str, ...] = ()
    ) -> None:
        """Add keywords to a call, or give those it has another value."""
        given = {keyword.arg: keyword for keyword in call.keywords}
        for name in drop:
            if name in given:
                self._drop(call, given[name])
        for name, value in values.items():
            if name in given:
                old = given[name].value
                self._replace(self._start(old), self._end(old), value)
        added = [f"{name}={value}" for name, value in values.items() if name not in given]
        if added:
            self._append(call, added, {given[name] for name in drop if name in given})

    def insert_after(self, statement: ast.stmt, *lines: str) -> None:
        """New lines below a statement, as far in as it is."""
        indent = " " * statement.col_offset
        text = "".join(f"{indent}{line}\n" if line else "\n" for line in lines)
        assert statement.end_lineno is not None
        at = self._starts[statement.end_lineno]
        if not self._content[:at].endswith(b"\n"):
            text = f"\n{text}"
        self._replace(at, at, text)

    def wrap(self, first: ast.stmt, last: ast.stmt, header: str) -> None:
        """Put statements under a `with`."""
        assert last.end_lineno is not None
        for line in range(first.lineno, last.end_lineno + 1):
            at = self._starts[line - 1]
            before = f"{' ' * first.col_offset}{header}\n" if line == first.lineno else ""
            if self._content[at : self._starts[line]].strip():
                self._replace(at, at, f"{before}    ")

    def _append(self, call: ast.Call, added: list[str], dropped: set[ast.keyword]) -> None:
        arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        kept: list[ast.expr | ast.keyword] = [
            one for one in arguments if not any(one is other for other in dropped)
        ]
        if not kept:
            at = self._end(call) - 1
            self._replace(at, at, ", ".join(added))
            return
        last = max(kept, key=self._end)
        # Arguments one to a line stay so.
        alone = len(kept) > 1 and len({one.lineno for one in kept}) == len(kept)
        between = f",\n{' ' * last.col_offset}" if alone else ", "
        self._replace(self._end(last), self._end(last), "".join(between + one for one in added))

    def _drop(self, call: ast.Call, keyword: ast.keyword) -> None:
        others: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        before = [self._end(one) for one in others if one is not keyword]
        start = max((at for at in before if at <= self._start(keyword)), default=None)
        if start is not None:
            self._replace(start, self._end(keyword), "")

    def _replace(self, start: int, end: int, new: str) -> None:
        self._edits.append((start, end, new.encode()))

    def _start(self, node: ast.expr | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
