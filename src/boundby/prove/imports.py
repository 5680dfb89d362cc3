"""What a script imports from installed packages until its first step, and in what surroundings.

Noted in one fresh run, for a process that is to be prepared alike (`nursery`). Only what the
script asks for itself is noted by name, in its order: the rest follows from that. The script's own
modules are never among it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from boundby.capture.process.step_hooks import StepHook
from boundby.prove.import_environment import Surroundings, beginning, surroundings

_OURS = str(Path(__file__).parents[1]) + os.sep
_PACKAGES = ("site-packages", "dist-packages")


def installed_places() -> tuple[str, ...]:
    """Folders of the search path that an installer has filled; never the script's own."""
    entries = [Path(entry) for entry in sys.path[0 if sys.flags.safe_path else 1 :] if entry]
    return tuple(
        str(entry.absolute()) + os.sep
        for entry in entries
        if entry.is_dir()
        and (entry.name in _PACKAGES or next(entry.glob("*.dist-info"), None) is not None)
    )


class Imports(StepHook, importlib.abc.MetaPathFinder):
    """Stands first among the finders and finds nothing, until the script's first step."""

    def __init__(self) -> None:
        self._places = installed_places()
        self._began = beginning()
        self._noted: dict[str, Surroundings] = {}
        self._files: dict[str, str] = {}
        self._busy = False
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if self._busy or fullname.partition(".")[0] in sys.stdlib_module_names:
            return
        self._busy = True
        try:
            if fullname not in self._noted and self._is_asked_for(sys._getframe(1)):
                spec = importlib.machinery.PathFinder.find_spec(fullname, path)
                if spec is not None and (spec.origin or "").startswith(self._places):
                    self._noted[fullname] = surroundings(self._began)
        finally:
            self._busy = False

    def _is_asked_for(self, frame: FrameType | None) -> bool:
        """Whether it is imported by the script, not in the course of another package's import."""
        while frame is not None:
            code = frame.f_code
            file = code.co_filename
            if code.co_name == "<module>" and file.startswith(self._places):
                return file.startswith(_OURS)
            frame = frame.f_back
        return True

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._files:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._files = module_files()

    def write(self, path: Path) -> None:
        """Nothing where it never came to a step."""
        if not self._files:
            return
        noted, last = [], Surroundings()
        for name, around in self._noted.items():
            noted.append({"name": name, "surroundings": around if around != last else None})
            last = around
        content = {"noted": noted, "files": self._files}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content))
        partial.replace(path)


def module_files() -> dict[str, str]:
    """All modules that came from a file, by name; without our own."""
    return {
        name: file
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
        and not file.startswith(_OURS)
        and name != "__main__"
    }
