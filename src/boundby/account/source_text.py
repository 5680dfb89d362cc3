"""The text of source lines, where the files are at hand."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from pathlib import Path

_LONGEST = 160
_COMPOUND = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.AsyncFor),
    *(ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
)


class SourceText:
    """Lines of files in these folders; what goes on over several lines is put on one."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._files: dict[str, list[str]] = {}

    def at(self, where: str) -> str | None:
        """The text at `train.py:42`."""
        path, _, line = where.rpartition(":")
        if not line.isdecimal():
            return None
        if path not in self._files:
            self._files[path] = self._read(path)
        lines = self._files[path]
        index = int(line) - 1
        return lines[index].strip() or None if 0 <= index < len(lines) else None

    def _read(self, path: str) -> list[str]:
        for folder in self._folders:
            try:
                text = (Path(folder) / path).read_text(errors="replace")
            except (OSError, ValueError):
                continue
            return _joined(text)
        return []


def _joined(text: str) -> list[str]:
    """The file's lines, those on which something longer begins with all of it.

    Python says of an operator the line on which its first operand stands: in code that is broken
    by operators this is a lone name.
    """
    lines = text.splitlines()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code: that is for its own interpreter to say
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return lines
    longest: dict[int, ast.stmt | ast.expr] = {}
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, (ast.stmt, ast.expr)) and not isinstance(node, _COMPOUND):
            longest.setdefault(node.lineno, node)
    for number, node in longest.items():
        begins = lines[number - 1][: node.col_offset].strip() if number <= len(lines) else "?"
        if (node.end_lineno or number) > number and not begins:
            whole = " ".join(ast.unparse(node).split())
            lines[number - 1] = whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"
    return lines
