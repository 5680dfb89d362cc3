"""Measured roofs, kept in the user's cache directory: never half-written, never trusted blindly."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import msgspec
import platformdirs

from boundby.errors import BoundbyError
from boundby.model import SCHEMA, Machine
from boundby.roofs.device import Device


def folder() -> Path:
    return Path(platformdirs.user_cache_dir("boundby")) / "machines"


def path_for(device: Device) -> Path:
    """One file per device, driver, torch version and thread count."""
    key = f"{device.name} {device.driver} torch {device.torch} {device.threads} threads"
    return folder() / (re.sub(r"[^A-Za-z0-9.]+", "-", key).strip("-").lower() + ".json")


def read(path: Path) -> Machine:
    """A saved machine; a `BoundbyError` with one line when it is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    try:
        header = msgspec.json.decode(content, type=_Header)
        if header.schema != SCHEMA:
            raise BoundbyError(
                f"{path} was written by another version of boundby "
                f"(schema {header.schema}, this one reads {SCHEMA})"
            )
        return msgspec.json.decode(content, type=Machine)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BoundbyError(f"{path} is not a saved machine ({error})") from None


def load(device: Device) -> Machine | None:
    """The roofs saved for this device; None when there are none yet."""
    path = path_for(device)
    return read(path) if path.exists() else None


def save(machine: Machine, device: Device) -> Path:
    """Keep a measurement. A quick one never replaces a full one."""
    path = path_for(device)
    if machine.quick:
        try:
            before = load(device)
        except BoundbyError:
            before = None
        if before is not None and not before.quick:
            return path
    write(machine, path)
    return path


def write(machine: Machine, path: Path) -> None:
    """Write all of it or nothing: a reader never sees half a file."""
    text = msgspec.json.format(msgspec.json.encode(machine), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".boundby-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BoundbyError(f"cannot write {path}: {error.strerror}") from None


class _Header(msgspec.Struct):
    schema: int
