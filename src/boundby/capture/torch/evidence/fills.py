"""Tensors that a function makes and then fills in place, with the lines that fill them.

A table that a loop fills is bound before it has its values. Its values are compared when its
function returns, or when the variable is bound again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from boundby.capture.torch.evidence.values import fingerprint

_MOST_LINES = 64  # memory limit: of one tensor

Key = tuple[str, str, int]  # line, variable, which time in the step


@dataclass(slots=True, kw_only=True)
class _Filling:
    key: Key
    value: Any
    version: int
    lines: dict[str, None]  # that made or changed it
    since: dict[str, None] = field(default_factory=dict)  # that ran since it last changed
    is_changed: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class Fill:
    """A tensor that was changed in place, with its final values; None if they cannot be read."""

    print: Any
    bytes: float
    lines: tuple[str, ...]


class InPlaceFills:
    """The tensors that functions filled in place in one step. Frames are known by their `id`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._filling: dict[int, dict[str, _Filling]] = defaultdict(dict)
        self.filled: dict[Key, Fill] = {}

    def bind(self, frame: int, key: Key, value: Any) -> None:
        """A line bound this tensor, without gradients, to a variable."""
        if value.requires_grad or value.is_inference():
            return
        self._end(self._filling[frame].pop(key[1], None))
        self._filling[frame][key[1]] = _Filling(
            key=key, value=value, version=value._version, lines={key[0]: None}
        )

    def line_ran(self, frame: int, line: str) -> None:
        for one in self._filling.get(frame, {}).values():
            version = one.value._version
            if version != one.version:
                # Lines between two changes compute what is filled in.
                one.lines.update(one.since if one.is_changed else {})
                one.lines[line] = None
                one.version, one.is_changed = version, True
                one.since.clear()
            elif len(one.since) < _MOST_LINES:
                one.since[line] = None

    def function_returned(self, frame: int) -> None:
        for one in self._filling.pop(frame, {}).values():
            self._end(one)

    def step_ended(self) -> dict[Key, Fill]:
        """Return what was filled in the step, and start the next."""
        for frame in list(self._filling):
            self.function_returned(frame)
        filled, self.filled = self.filled, {}
        return filled

    def _end(self, one: _Filling | None) -> None:
        if one is None or not one.is_changed:
            return
        plain = not (one.value.requires_grad or one.value.is_inference())
        self.filled[one.key] = Fill(
            print=fingerprint(self._torch, one.value) if plain else None,
            bytes=float(one.value.nbytes),
            lines=tuple(one.lines),
        )


def same_fills(steps: list[dict[Key, Fill]]) -> Iterator[tuple[str, Fill]]:
    """The variables that were filled with the same values in every step, at all their places."""
    differ = {
        key[:2]
        for key, last in steps[-1].items()
        if last.print is None
        or any(key not in one or one[key].print != last.print for one in steps)
    }
    for key, last in steps[-1].items():
        if key[:2] not in differ:
            yield key[1], last
