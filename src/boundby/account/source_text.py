"""What stands at a source line, and in which function, where the file is at hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class SourceLine(NamedTuple):
    text: str
    function: str | None  # "Block.forward"; None at the top of a file


class SourceText:
    """The lines of files below some folders, each file read once."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._files: dict[str, _File] = {}

    def at(self, where: str) -> SourceLine | None:
        """The line of "train.py:42"; None where there is none, or nothing in it."""
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
        self._source = source
        self._lines = source.splitlines()
        self._scopes: list[tuple[int, int, str]] | None = None

    def line(self, number: int) -> SourceLine | None:
        text = self._lines[number - 1].strip() if 0 < number <= len(self._lines) else ""
        return SourceLine(text, self._function(number)) if text else None

    def _function(self, number: int) -> str | None:
        if self._scopes is None:
            self._scopes = self._parse()
        around = [name for first, last, name in self._scopes if first <= number <= last]
        return around[-1] if around else None  # the innermost comes last

    def _parse(self) -> list[tuple[int, int, str]]:
        try:
            return list(_scopes(ast.parse(self._source), ""))
        except (SyntaxError, ValueError, RecursionError):  # another Python's, or no Python at all
            return []


def _scopes(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    """Functions with their lines, those around others first."""
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, _SCOPES):
            name = f"{outer}.{child.name}" if outer else child.name
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, name
        yield from _scopes(child, name)
