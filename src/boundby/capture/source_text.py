"""The text of a source line, and its function, if the file is available."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from boundby.model.observation import SourceLine

_LONGEST = 160  # display limit
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPOUND = (
    *(*_SCOPES, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try),
    *(ast.TryStar, ast.Match),
)


class SourceText:
    """Lines of files in these folders; statements of several lines are joined."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._files: dict[str, _File] = {}

    def at(self, where: str) -> SourceLine | None:
        """The line of "train.py:42"; None if it does not exist or is empty."""
        path, _, line = where.rpartition(":")
        if not line.isdecimal():
            return None
        if path not in self._files:
            self._files[path] = _File(self._read(path))
        return self._files[path].line(int(line))

    def _read(self, path: str) -> str:
        for folder in self._folders:
            try:
                return (Path(folder) / path).read_text(errors="replace")
            except (OSError, ValueError):
                continue
        return ""


class _File:
    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._scopes: list[tuple[int, int, str]] = []
        tree = _parsed(source)
        if tree is not None:
            self._scopes = list(_scopes(tree, ""))
            _join(self._lines, tree)

    def line(self, number: int) -> SourceLine | None:
        text = self._lines[number - 1].strip() if 0 < number <= len(self._lines) else ""
        return SourceLine(text=text, function=self._function(number)) if text else None

    def _function(self, number: int) -> str | None:
        around = [name for first, last, name in self._scopes if first <= number <= last]
        return around[-1] if around else None  # the innermost comes last


def _parsed(source: str) -> ast.Module | None:
    """The syntax tree; None for another Python version, or no Python at all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the code are for its own interpreter
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _scopes(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    """Functions with their lines, outer ones first."""
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, _SCOPES):
            name = f"{outer}.{child.name}" if outer else child.name
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, name
        yield from _scopes(child, name)


def _join(lines: list[str], tree: ast.Module) -> None:
    """Join a statement that begins on a line and continues, on that line.

    Python reports for an operator the line of its first operand: in code broken at operators this
    is a single name.
    """
    longest: dict[int, ast.stmt | ast.expr] = {}
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, (ast.stmt, ast.expr)) and not isinstance(node, _COMPOUND):
            longest.setdefault(node.lineno, node)
    for number, node in longest.items():
        begins = lines[number - 1][: node.col_offset].strip() if number <= len(lines) else "?"
        if (node.end_lineno or number) > number and not begins:
            whole = " ".join(ast.unparse(node).split())
            lines[number - 1] = whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"
