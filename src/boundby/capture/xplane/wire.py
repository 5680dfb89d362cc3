"""The protobuf wire format: the parts that profiles use, read from bytes in memory."""

from __future__ import annotations

from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protobuf
_LONGEST_VARINT = 70  # bits: ten bytes of seven


class DamagedError(Exception):
    """The bytes at an offset are not a message."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset
        self.problem = problem


class Field(NamedTuple):
    """A field of a message. `value` is its number, or where its bytes begin; `end` where they end.

    `end` is 0 for a number.
    """

    number: int
    value: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where the next field begins."""
    result = shift = 0
    start = at
    while at < end:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift >= _LONGEST_VARINT:
            raise DamagedError(start, "a number of more than ten bytes")
    raise DamagedError(start, "a number goes past the end of its message")


def fields(data: bytes, start: int, end: int) -> list[Field]:
    """All fields of the message between two offsets."""
    found: list[Field] = []
    append = found.append
    at = start
    while at < end:
        begin = at
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = varint(data, begin, end)
        kind = key & 7
        if kind in (VARINT, BYTES):
            if at < end and data[at] < 0x80:
                value = data[at]
                at += 1
            else:
                value, at = varint(data, at, end)
            if kind == VARINT:
                append(Field(key >> 3, value, 0))
                continue
            size = value
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise DamagedError(begin, f"no field begins here (wire type {kind})")
        if not key >> 3:
            raise DamagedError(begin, "a field without a number")
        if at + size > end:
            raise DamagedError(begin, "a field goes past the end of its message")
        append(Field(key >> 3, at, at + size))
        at += size
    return found


def signed(value: int) -> int:
    """A 64-bit number as protobuf's int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def packed(data: bytes, field: Field) -> list[int]:
    """The numbers of a repeated field, packed or one at a time."""
    if not field.end:
        return [signed(field.value)]
    numbers, at = [], field.value
    while at < field.end:
        value, at = varint(data, at, field.end)
        numbers.append(signed(value))
    return numbers


def text(data: bytes, field: Field) -> str:
    return data[field.value : field.end].decode("utf-8", "replace") if field.end else ""
