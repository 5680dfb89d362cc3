"""Proving from Python: any function that is one step."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.process.execution import Target
from boundby.model import Machine, store
from boundby.model.diagnosis import Diagnosis
from boundby.model.progress import show_progress
from boundby.prove.candidates import Choice
from boundby.prove.experiment import prove_target
from boundby.prove.request import Request
from boundby.prove.same_process import prove_here


def prove(
    function: Callable[..., Any],
    *args: Any,
    budget_s: float = 300.0,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    also: Sequence[str] = (),
    machine: Machine | None = None,
    accept_unverified: bool = False,
    **kwargs: Any,
) -> Diagnosis:
    """Diagnose a function that is one step, apply each fix to it, and measure the speed-ups.

    `only`, `skip` and `also` name faults or fixes; `also` adds those without a finding.

    A function that can be imported, with arguments that can be pickled, is run in separate
    processes; any other in this process, with modules and optimizers restored at the end.
    """
    choice = Choice(only=only, skip=skip, also=also)
    if _is_importable(function) and (arguments := _pickled(args, kwargs)) is not None:
        with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
            request = Request(
                target=_driver(function, arguments, Path(folder)),
                budget_s=budget_s,
                choice=choice,
                machine_file=_saved(machine, Path(folder)),
                accept_unverified=accept_unverified,
                search_path=[entry or str(Path.cwd()) for entry in sys.path],
            )
            with show_progress("proving:") as progress:
                diagnosis = prove_target(request, progress).diagnosis
        return msgspec.structs.replace(diagnosis, target=function.__qualname__)
    return prove_here(
        functools.partial(function, *args, **kwargs),
        budget_s=budget_s,
        choice=choice,
        machine=machine,
        accept_unverified=accept_unverified,
    )


def _is_importable(function: Callable[..., Any]) -> bool:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__") or name is None or "<" in name:
        return False
    try:
        imported: object = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return False
    return imported is function


def _pickled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    try:
        return pickle.dumps((args, kwargs))
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def _driver(function: Callable[..., Any], arguments: bytes, folder: Path) -> Target:
    path = folder / "arguments.pickle"
    path.write_bytes(arguments)
    return Target(
        name="boundby.prove.function_target",
        args=[function.__module__, function.__qualname__, os.fspath(path)],
        is_module=True,
    )


def _saved(machine: Machine | None, folder: Path) -> Path | None:
    if machine is None:
        return None
    path = folder / "machine.json"
    store.write(machine, path)
    return path
