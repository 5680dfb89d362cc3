"""The options of one `boundby prove`, and the places and settings that follow from them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from boundby.capture.process.execution import Target
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.prove import scratch
from boundby.prove.candidates import Choice
from boundby.prove.launch import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of one `boundby prove`."""

    target: Target
    budget_s: float = 300.0
    choice: Choice = field(default_factory=Choice)
    step_by: str = "auto"
    diagnosis: Diagnosis | None = None
    machine_file: Path | None = None
    plugins: Sequence[str] = ()
    logs: Path | None = None
    scratch: bool = False
    accept_unverified: bool = False
    search_path: Sequence[str] = ()
    ranks: int = 1  # processes that run the script together, on this machine


def load_plugins(plugins: Sequence[str]) -> None:
    if plugins and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for plugin in plugins:
        try:
            importlib.import_module(plugin)
        except ModuleNotFoundError:
            raise BoundbyError(f"no module named {plugin} for --plugin") from None


def place(request: Request, cwd: Path, temporary: Path) -> Callable[[], Path]:
    """The folder that the next process is to run in."""
    if not request.scratch:
        return lambda: cwd
    if not request.target.is_module and Path(request.target.name).is_absolute():
        raise BoundbyError("--scratch needs the script's path relative to this folder")
    scratch.check_copy(cwd)
    return lambda: scratch.copy_of(cwd, temporary)


def setting(request: Request, temporary: Path) -> Setting:
    if request.logs is not None:
        request.logs.mkdir(parents=True, exist_ok=True)
    return Setting(
        target=request.target,
        folder=temporary,
        # Logs are kept after the proof: the report names those of failed processes.
        logs=(
            request.logs.absolute()
            if request.logs is not None
            else Path(tempfile.mkdtemp(prefix="boundby-logs-"))
        ),
        step_by=request.step_by,
        plugins=request.plugins,
        search_path=request.search_path,
        compiled=temporary / "compiled",
        ranks=request.ranks,
    )


def script_path(target: Target) -> Path | None:
    if not target.is_module:
        return Path(target.name)
    try:
        spec = importlib.util.find_spec(target.name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
