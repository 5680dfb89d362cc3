"""The files that a script opens for writing, as the interpreter reports them.

Comparing a folder before and after would include files that other programs wrote meanwhile. The
interpreter reports every file that Python code opens; torch writes its checkpoints in C++, so calls
of `torch.save` are recorded too. Forked processes are included.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from boundby.model import Note
from boundby.runtime.import_hooks import when_imported
from boundby.runtime.patching import PatchSet

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MAX_FILES_NAMED = 8  # display limit
# Caches of the frameworks and of Python itself: not reported.
_CACHES = {".cache", ".triton", ".nv", "__pycache__", "site-packages", "dist-packages"}
_SYSTEM = ("/dev", "/proc", "/sys")


def note_written_files(notes: Path) -> None:
    """Append the name of each file that this process opens for writing, from now on, to another
    file.

    An audit hook cannot be removed: this is for a process that runs one script.
    """
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    noted: set[str] = set()

    def note(path: object) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - no objects in a hook
        if name not in noted:
            noted.add(name)
            os.write(handle, os.fsencode(name) + b"\0")

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & _WRITING:
            note(args[0])
        elif event in ("os.rename", "sqlite3.connect"):
            note(args[1] if event == "os.rename" else args[0])

    def record_saves(torch: ModuleType) -> None:
        def around(original: Any) -> Any:
            @functools.wraps(original)
            def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
                note(f)
                return original(obj, f, *args, **kwargs)

            return save

        PatchSet().swap(torch, "save", around)

    when_imported("torch", record_saves)
    sys.addaudithook(audit)


def remaining_files(written: Iterable[str], folder: Path, ours: Collection[Path]) -> list[str]:
    """Files that still exist, relative to a folder; without caches and without `ours`."""
    temporary = Path(tempfile.gettempdir()).resolve()
    remaining = []
    for name in dict.fromkeys(written):
        path = Path(name)
        inside = folder in path.parents
        hidden = _CACHES & set(path.parts) or name.startswith(_SYSTEM)
        passing = temporary in path.parents and not inside
        if (
            hidden
            or passing
            or not path.is_file()
            or any(our_folder in path.parents for our_folder in ours)
        ):
            continue
        remaining.append(str(path.relative_to(folder)) if inside else name)
    return sorted(remaining)


def note_of(written: Sequence[str]) -> list[Note]:
    """The note on the files that the script wrote."""
    if not written:
        return []
    named = ", ".join(written[:_MAX_FILES_NAMED])
    more = len(written) - _MAX_FILES_NAMED
    named += f" and {more} more" * (more > 0)
    return [
        Note(code="files-written", text=f"the script wrote files while it was measured: {named}")
    ]
