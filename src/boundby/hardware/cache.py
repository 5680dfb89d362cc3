"""Measured roofs, kept in the user's cache directory."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import platformdirs

from boundby.hardware.device import Device
from boundby.model import Machine, store
from boundby.model.errors import BoundbyError


def folder() -> Path:
    return Path(platformdirs.user_cache_dir("boundby")) / "machines"


def path_for(device: Device) -> Path:
    """One file per device, driver, torch version and thread count."""
    key = f"{device.name} {device.driver} torch {device.torch} {device.threads} threads"
    return folder() / (re.sub(r"[^A-Za-z0-9.]+", "-", key).strip("-").lower() + ".json")


def read(path: Path) -> Machine:
    """A machine saved here or, with `boundby machine --json`, elsewhere."""
    return store.read(path, Machine, "machine")


def load(device: Device) -> Machine | None:
    """The roofs saved for this device; None when there are none yet."""
    path = path_for(device)
    return read(path) if path.exists() else None


def find(device: str) -> Machine | None:
    """The roofs saved here for a device of this name; full measurements before quick ones."""
    matching = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(BoundbyError):
            matching.append(read(path))
    named = [machine for machine in matching if machine.device == device]
    return min(named, key=lambda machine: machine.quick, default=None)


def mark_busy(device: Device) -> None:
    """Tell processes that wait for saved roofs that none will be saved."""
    place = _marker(device)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def is_settled(device: Device) -> bool:
    """Whether roofs are saved, or were measured on a busy machine and will not be."""
    return path_for(device).exists() or _marker(device).exists()


def _marker(device: Device) -> Path:
    return path_for(device).with_suffix(".busy")


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
    store.write(machine, path)
    _marker(device).unlink(missing_ok=True)
    return path
