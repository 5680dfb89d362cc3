"""Saved types as files: written atomically; a failed read gives a one-line error."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from boundby.model import SCHEMA, Record
from boundby.model.errors import BoundbyError

Saved = TypeVar("Saved", bound=Record)


class _Header(msgspec.Struct):
    schema: int


def _schema_of(kind: type[Record]) -> int:
    """The schema that files of this type are written with."""
    fields = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return int(fields.get("schema", SCHEMA))


def upgraded(saved: dict[str, Any], schema: int) -> dict[str, Any]:
    """A diagnosis of schema 1 with the keys of schema 2."""
    texts = saved.pop("warnings", [])
    notes = [{"code": "schema-1", "text": text} for text in texts]
    for piece in saved.get("timeline", []):
        kind, _, number = str(piece.get("lane")).partition(" ")
        piece |= {"lane": kind, "number": int(number) if number.lstrip("-").isdecimal() else 0}
    return saved | {"schema": schema, "notes": notes}


def as_json(saved: Record) -> bytes:
    """Return indented JSON, so that two files can be compared with diff."""
    return msgspec.json.format(msgspec.json.encode(saved), indent=1)


def write(saved: Record, path: Path) -> None:
    """Write a saved type as indented JSON."""
    write_bytes(as_json(saved), path)


def write_text(text: str, path: Path) -> None:
    """Write a page or another text."""
    write_bytes(text.encode(), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically: a reader never sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".boundby-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BoundbyError(f"cannot write {path}: {error.strerror}") from None


def copy(source: Path, path: Path) -> None:
    """Copy an existing file atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    except OSError as error:
        raise BoundbyError(f"cannot write {path}: {error.strerror}") from None


def _umask() -> int:
    """Return the umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def is_saved(path: Path) -> bool:
    """Return whether a file begins like those written by `write`."""
    try:
        with path.open("rb") as file:
            return re.match(rb'\s*\{\s*"schema"\s*:', file.read(64)) is not None
    except OSError:
        return False


def read(path: Path, kind: type[Saved], what: str) -> Saved:
    """Read a saved type; raise `BoundbyError` if the file is not a saved `what`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    try:
        header = msgspec.json.decode(content, type=_Header)
        current = _schema_of(kind)
        if not 1 <= header.schema <= current:
            raise BoundbyError(
                f"{path} was written by another version of boundby "
                f"(schema {header.schema}, this one reads up to {current})"
            )
        if header.schema == current:
            return msgspec.json.decode(content, type=kind)
        return msgspec.convert(upgraded(msgspec.json.decode(content), current), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BoundbyError(f"{path} is not a saved {what} ({error})") from None
