"""Shared by all tables of measurements: the numbers of a row, and why one cannot be predicted."""

from __future__ import annotations

import dataclasses
import functools
import math

import msgspec

from boundby.plan.chips import Target

Row = dict[str, str]
# Above any size of a table: bytes, tokens, chips.
_MOST = 1e15


class RowError(ValueError):
    """A row that lacks what a prediction needs; the text says what."""


def number(row: Row, name: str) -> float | None:
    """The value of a column; None if it is empty or does not exist."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{name} is no number") from None
    if not math.isfinite(value) or not 0 <= value <= _MOST:
        raise RowError(f"{name} is no usable number")
    return value


def required(row: Row, name: str) -> int:
    """The value of a column that a prediction needs."""
    value = number(row, name)
    if not value or round(value) < 1:
        raise RowError(f"no {name}")
    return round(value)


def axis_size(row: Row, name: str) -> int:
    """Ways of a mesh axis; 1 if not stated."""
    return max(1, round(number(row, name) or 1))


def cleaned(row: dict[str | None, str | None], index: int) -> Row:
    """The row with text in every column, and an id."""
    found = {name: value or "" for name, value in row.items() if isinstance(name, str)}
    return {**found, "id": found.get("id") or f"row-{index}"}


def prefix(identifier: str) -> str:
    """The source's short name in a row's id."""
    return identifier.rsplit("-", 1)[0]


@functools.cache
def half(target: Target) -> Target:
    """One of a chip's two devices: half of its rates, memory and links."""
    roofs = [msgspec.structs.replace(one, value=one.value / 2) for one in target.machine.roofs]
    fabric = msgspec.structs.replace(
        target.fabric,
        egress=target.fabric.egress / 2,
        domain=target.fabric.domain * 2,
        axis_link=target.fabric.axis_link / 2 if target.fabric.axis_link else None,
    )
    return dataclasses.replace(
        target,
        machine=msgspec.structs.replace(target.machine, roofs=roofs),
        fabric=fabric,
        memory_bytes=target.memory_bytes / 2,
        link=target.link / 2,
        sustained={unit: rate / 2 for unit, rate in target.sustained.items()},
    )
