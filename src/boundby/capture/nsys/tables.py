"""The tables of an export as rows; their columns differ between versions of Nsight Systems."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from boundby.model.errors import BoundbyError

# Columns of text; all others contain integers.
_TEXTS = ("name", "text", "value")


class Export:
    """An open export: its tables, and the texts that they number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Read only: nothing is written beside the user's file.
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        strings = self.rows("StringIds", ("id", "value"))
        self.texts: dict[int, str] = {number: text for number, text in strings if text}

    def close(self) -> None:
        self._connection.close()

    def columns(self, table: str) -> list[str]:
        """The columns of a table; none if the table does not exist."""
        quoted = table.replace('"', '""')
        return [row[1] for row in self._run(f'PRAGMA table_info("{quoted}")')]

    def rows(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of a table by column; None for a column that this version does not have, and for a
        value of another type than the column's."""
        there = set(self.columns(table))
        if not there:
            return
        named = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
        types = [str if name in _TEXTS else int for name in wanted]
        for row in self._run(f'SELECT {named} FROM "{table}"'):
            yield tuple(
                cell if type(cell) is kind else None for cell, kind in zip(row, types, strict=True)
            )

    def _run(self, statement: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement)
        except sqlite3.Error as error:
            raise BoundbyError(f"{self.path}: a damaged Nsight Systems export: {error}") from None
