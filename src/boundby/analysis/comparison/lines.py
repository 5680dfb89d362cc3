"""Matches the source lines of two diagnoses: lines move, and files are renamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from boundby.model.rows import LineRow

Pair = tuple[LineRow, LineRow]
Key = Callable[[LineRow], object]


def match_lines(
    before: Sequence[LineRow], after: Sequence[LineRow]
) -> tuple[list[Pair], list[LineRow], list[LineRow]]:
    """Pairs of the same line; lines only before; lines only after.

    Matched in this order: the same place and text; the same text in the same file; the same text in
    the same function of another file; a text that occurs once on each side; the same place, in a
    file that may have been renamed.
    """
    pairs: list[Pair] = []
    left, right = list(before), list(after)
    for key in (_place_and_text, _file_and_text):
        matched, left, right = _paired(left, right, key, key)
        pairs += matched
    for key_of in (_function_and_text, _only_text):
        matched, left, right = _paired(left, right, key_of(left), key_of(right))
        pairs += matched
    renamed = _renamed(pairs)
    matched, left, right = _paired(left, right, lambda row: _place(row, renamed), _place)
    return pairs + matched, left, right


def _file(row: LineRow) -> str:
    return row.where.rpartition(":")[0]


def _place_and_text(row: LineRow) -> object:
    return row.where, row.text


def _file_and_text(row: LineRow) -> object:
    return (_file(row), row.text) if row.text else None


def _function_and_text(_: Sequence[LineRow]) -> Key:
    return lambda row: (row.function, row.text) if row.function and row.text else None


def _only_text(rows: Sequence[LineRow]) -> Key:
    """A text that occurs once: `x = self.act(x)` in several places identifies no line."""
    counts = Counter(row.text for row in rows)
    return lambda row: row.text if row.text and counts[row.text] == 1 else None


def _place(row: LineRow, renamed: dict[str, str] | None = None) -> object:
    file, _, line = row.where.rpartition(":")
    return (renamed or {}).get(file, file), line


def _renamed(pairs: Iterable[Pair]) -> dict[str, str]:
    """The new names of files: for each, the file that most of its lines moved to."""
    votes: dict[str, Counter[str]] = {}
    for a, b in pairs:
        votes.setdefault(_file(a), Counter())[_file(b)] += 1
    return {file: counts.most_common(1)[0][0] for file, counts in votes.items()}


def _paired(
    left: Iterable[LineRow], right: Iterable[LineRow], left_key: Key, right_key: Key
) -> tuple[list[Pair], list[LineRow], list[LineRow]]:
    """Pairs of rows with the same key, in order; and the unmatched rows of each side."""
    waiting: dict[object, list[LineRow]] = {}
    for row in right:
        waiting.setdefault(right_key(row), []).append(row)
    pairs, alone = [], []
    for row in left:
        candidates = waiting.get(left_key(row)) if left_key(row) is not None else None
        if candidates:
            pairs.append((row, candidates.pop(0)))
        else:
            alone.append(row)
    return pairs, alone, [row for rows in waiting.values() for row in rows]
