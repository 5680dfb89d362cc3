"""A small encoder of protobuf messages, and profiles made with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_STATS = {
    name: number
    for number, name in enumerate(
        (
            "correlation_id",
            "hlo_op",
            "hlo_module",
            "program_id",
            "cuda_graph_id",
            "Hlo Proto",
            "step_num",
            "memcpy_details",
            "run_id",
            "gpu_device_name",
            "memory_size",
            "device_vendor",
        ),
        1,
    )
}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def stat(name: str, value: int | str | bytes) -> bytes:
    kind = 4 if isinstance(value, int) else 5 if isinstance(value, str) else 6
    return message((1, _STATS[name]), (kind, value))


class Event(NamedTuple):
    """Times in ns from the beginning of the profile."""

    name: str
    start: int
    duration: int
    stats: dict[str, int | str]


def plane(
    name: str,
    lines: dict[str, Sequence[Event]],
    stats: dict[str, int | str] | None = None,
    time_ns: int = 1000,
) -> bytes:
    keys: dict[str, int] = {}
    out = [field(2, name)]
    for number, (line, events) in enumerate(lines.items()):
        encoded = [field(1, number), field(2, line), field(3, time_ns)]
        for event in events:
            key = keys.setdefault(event.name, len(keys) + 1)
            parts = [(1, key), (2, event.start * 1000), (3, event.duration * 1000)]
            encoded.append(
                field(4, message(*parts, *((4, stat(*one)) for one in event.stats.items())))
            )
        out.append(field(3, b"".join(encoded)))
    for entry, key in keys.items():
        out.append(field(4, message((1, key), (2, message((1, key), (2, entry))))))
    return b"".join([*out, *_tables(), *(field(6, stat(*one)) for one in (stats or {}).items())])


def _tables() -> Iterable[bytes]:
    for name, number in _STATS.items():
        yield field(5, message((1, number), (2, message((1, number), (2, name)))))


def programs(protos: dict[str, bytes]) -> bytes:
    """The plane of programs, by names as "jit_step(7)"."""
    out = [field(2, "/host:metadata"), *_tables()]
    for key, (name, proto) in enumerate(protos.items(), 1):
        entry = message((1, key), (2, name), (5, stat("Hlo Proto", proto)))
        out.append(field(4, message((1, key), (2, entry))))
    return b"".join(out)


def space(*planes: bytes) -> bytes:
    return b"".join(field(1, one) for one in planes)


_TYPES = {"f32": 11, "bf16": 16, "s32": 4, "pred": 1}


def shape(text: str) -> bytes:
    """As HLO writes it: "bf16[8,16]"."""
    kind, _, rest = text.partition("[")
    extents = [int(part) for part in rest.rstrip("]").split(",") if part]
    return message((2, _TYPES[kind]), *((3, extent) for extent in extents))


def tuple_shape(*texts: str) -> bytes:
    return message((2, 13), *((4, shape(text)) for text in texts))


def instruction(
    number: int,
    name: str,
    opcode: str,
    result: str | bytes,
    operands: Sequence[int] = (),
    called: Sequence[int] = (),
    *extra: tuple[int, int | bytes | str],
    op_name: str = "",
    frame: int = 0,
) -> bytes:
    metadata = message((2, op_name), (15, frame))
    return message(
        (1, name),
        (2, opcode),
        (3, shape(result) if isinstance(result, str) else result),
        (7, metadata),
        (35, number),
        (36, b"".join(varint(one) for one in operands)),
        (38, b"".join(varint(one) for one in called)),
        *extra,
    )


def computation(number: int, name: str, instructions: Sequence[bytes], root: int) -> bytes:
    return message((1, name), *((2, one) for one in instructions), (5, number), (6, root))


def frames(
    files: Sequence[str], locations: Sequence[tuple[int, int]], parents: Sequence[int]
) -> bytes:
    """A table with one stack frame for each location (file, line)."""
    return message(
        *((1, file) for file in files),
        *((3, message((1, file), (3, line))) for file, line in locations),
        *((4, message((1, at), (2, parent))) for at, parent in enumerate(parents, 1)),
    )


def hlo(
    name: str,
    computations: Sequence[bytes],
    entry: int,
    schedule: Sequence[int],
    stack: bytes = b"",
    buffers: bytes = b"",
) -> bytes:
    order = message((1, b"".join(varint(one) for one in schedule)))
    module = message(
        (1, name),
        *((3, one) for one in computations),
        (6, entry),
        (7, message((1, message((1, entry), (2, order))))),
        (17, stack),
    )
    return message((1, module), (3, buffers))
