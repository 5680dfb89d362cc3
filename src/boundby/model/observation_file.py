"""Saved observations: one compact file, `observation.bin`.

A line that names the format and its schema, then MessagePack, compressed. Columns are stored byte
plane by byte plane: neighbouring numbers share their high bytes.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from boundby.model import store
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation

FILE_NAME = "observation.bin"
_SCHEMA = 1  # version of the format
_HEADER = re.compile(rb"boundby observation (\d+)\n")
_LONGEST_HEADER = 64  # bytes


def is_observation(path: Path) -> bool:
    """Whether a file begins like those written by `write_observation`."""
    try:
        with path.open("rb") as file:
            return _HEADER.match(file.read(_LONGEST_HEADER)) is not None
    except OSError:
        return False


def write_observation(observation: Observation, path: Path) -> None:
    packed = msgspec.msgpack.encode(observation, enc_hook=_packed)
    store.write_bytes(b"boundby observation %d\n" % _SCHEMA + zlib.compress(packed), path)


def read_observation(path: Path) -> Observation:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    header = _HEADER.match(content)
    if header is None:
        raise BoundbyError(f"{path} is not a saved observation")
    if int(header[1]) != _SCHEMA:
        raise BoundbyError(
            f"{path} was written by another version of boundby "
            f"(schema {int(header[1])}, this one reads {_SCHEMA})"
        )
    try:
        packed = zlib.decompress(content[header.end() :])
        return msgspec.msgpack.decode(packed, type=Observation, dec_hook=_unpacked)
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError) as error:
        raise BoundbyError(f"{path} is damaged ({error})") from None


def _packed(column: Any) -> Any:
    """A column as its dtype and its bytes."""
    if not isinstance(column, np.ndarray):
        raise NotImplementedError(f"an observation holds no {type(column).__name__}")
    width = column.dtype.itemsize
    planes = np.ascontiguousarray(column).view(np.uint8).reshape(-1, width).T
    return column.dtype.str, planes.tobytes()


def _unpacked(_: type, saved: Any) -> Any:
    dtype = np.dtype(saved[0])
    planes = np.frombuffer(saved[1], np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(-1)
