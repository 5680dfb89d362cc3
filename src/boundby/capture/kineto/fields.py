"""The fields of events as integers; writers print the same field as a number or as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.arguments import MESSAGE_TYPES
from boundby.capture.kineto.events import NONE, Arguments, Event, Number
from boundby.capture.kineto.rows import Column
from boundby.model import DTYPE_BYTES
from boundby.model.timeline import Ints

_INT64_MAX = 2**63 - 1  # definition


def nanoseconds(us: npt.NDArray[np.float64]) -> Ints:
    """Integer and fractional microseconds separately: since 1970 there are more ns than a float64
    can count."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def absent(count: int) -> Column:
    """A column in which nothing was recorded, without using memory."""
    return np.broadcast_to(np.int32(NONE), count)


def externals(arguments: list[Arguments]) -> Ints:
    current = integers([given.external for given in arguments])
    if (current == NONE).all():
        return integers([given.legacy_external for given in arguments])
    return current


def stream(event: Event) -> Number:
    return event.tid if event.args.stream == NONE else event.args.stream


def size(event: Event) -> Number:
    """The size that a copy or a collective reports."""
    given = event.args
    if given.message_elements == NONE or given.bytes != NONE:
        return given.bytes
    width = DTYPE_BYTES.get(MESSAGE_TYPES.get(given.message_type or "", ""))
    return NONE if width is None else integer(given.message_elements) * width


def in_graph(given: Arguments) -> bool:
    """Writers say 0 for a kernel outside every graph."""
    return given.graph not in (NONE, 0, None) or given.graph_node not in (NONE, 0, None)


def integers(values: list[Any]) -> Ints:
    """A column of integers; what is missing, not an integer or beyond int64 becomes -1."""
    try:
        return np.array(values, np.int64)
    except (OverflowError, ValueError, TypeError):
        return np.array([integer(value) for value in values], np.int64)


def integer(value: Number) -> int:
    if isinstance(value, str):
        text = value.rpartition(" ")[2]  # "stream 7"
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    if value is None or value != value or abs(value) > _INT64_MAX:
        return NONE
    return int(value)
