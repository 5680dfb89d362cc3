"""Where the script runs with --scratch: in copies of its folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from boundby.model.errors import BoundbyError
from boundby.model.units import size

# Folders that no training script reads or writes.
_NEVER = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".boundby"}
_MAX_FILES = 50_000  # time limit for a copy
_MAX_BYTES = 4_000_000_000  # disk limit for a copy

Files = dict[Path, tuple[int, int]]  # time of the last write, and size


def files_in(folder: Path) -> Files:
    """All files below a folder; in a folder of very many, the first of them."""
    files: Files = {}
    for path in _walk(folder):
        try:
            status = path.stat()
        except OSError:  # deleted meanwhile, or a dead link
            continue
        files[path.relative_to(folder)] = (status.st_mtime_ns, status.st_size)
        if len(files) >= _MAX_FILES:
            break
    return files


def check_copy(folder: Path) -> None:
    """Raise for a folder that takes minutes to copy each time."""
    total = sum(bytes_ for _, bytes_ in files_in(folder).values())
    if total > _MAX_BYTES:
        raise BoundbyError(
            f"--scratch would copy {size(total)} of {folder} for every run: start it in a smaller "
            "folder, or leave it out"
        )


def copy_of(folder: Path, place: Path) -> Path:
    """A fresh copy of a folder, which replaces earlier ones: no run finds files of another."""
    target = place / "scratch"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, symlinks=True, ignore=lambda _, names: _NEVER & set(names))
    return target


def _walk(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in _NEVER:
                yield from _walk(entry)
        else:
            yield entry
