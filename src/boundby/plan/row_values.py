"""What every table of measurements needs: the numbers of a row, and why one cannot be predicted."""

from __future__ import annotations

import dataclasses
import functools
import math

import msgspec

from boundby.plan.chips import Target

Row = dict[str, str]


class RowError(ValueError):
    """A row that lacks what a prediction needs; the text says what."""


def number(row: Row, name: str) -> float | None:
    """The value of a column; None where it is empty or there is no such column."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{name} is no number") from None
    if not math.isfinite(value):
        raise RowError(f"{name} is no number")
    return value


def needed(row: Row, name: str) -> int:
    """The value of a column that a prediction cannot do without."""
    value = number(row, name)
    if value is None:
        raise RowError(f"no {name}")
    return round(value)


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
