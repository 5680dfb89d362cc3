"""Settings for debugging and for reproducible results, in the script's text."""

from __future__ import annotations

from functools import partial
from typing import Any

import libcst as cst

from boundby.prove.patching.process_settings import insert_below_imports
from boundby.prove.patching.program import Program
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix

_ANOMALY = "torch.autograd.set_detect_anomaly"
_AS_BLOCK = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")


def write_no_anomaly_detection(program: Program, fix: ChosenFix) -> None:
    """Write `set_detect_anomaly(False)`, which can be used in a `with` like `detect_anomaly()`."""
    written = _with_first_argument(program, _ANOMALY, "False")
    for file, call in program.executed_calls():
        if file.full_name(call.func) in _AS_BLOCK:
            file.change(call, lambda _: cst.parse_expression(f"{_ANOMALY}(False)"))
            written = True
    if not written:
        raise CannotWriteError("no executed call that switches it on was found")


def write_not_deterministic(program: Program, fix: ChosenFix) -> None:
    if not _with_first_argument(program, "torch.use_deterministic_algorithms", "False"):
        raise CannotWriteError("no executed call that switches it on was found")


def write_threads_as_cores(program: Program, fix: ChosenFix, *, cores: int) -> None:
    if not _with_first_argument(program, "torch.set_num_threads", str(cores)):
        insert_below_imports(program.script, f"torch.set_num_threads({cores})")


def write_line(program: Program, fix: ChosenFix, *, line: str) -> None:
    """Write a line that can be inserted below the imports."""
    insert_below_imports(program.script, line)


def write_cudnn_benchmark(program: Program, fix: ChosenFix) -> None:
    """Write the setting where the script sets it, otherwise below the imports."""
    name = "torch.backends.cudnn.benchmark"
    assignments = [
        (file, assign)
        for file in program.files.values()
        for assign in file.find(cst.Assign)
        if file.is_executed(assign) and file.full_name(assign.targets[0].target) == name
    ]
    for file, assign in assignments:
        file.change(assign.value, lambda _: cst.Name("True"))
    if not assignments:
        insert_below_imports(program.script, f"{name} = True")


def _with_first_argument(program: Program, function: str, value: str) -> bool:
    """Set this argument in the executed calls of a function; False if there are none."""
    calls = [
        (file, call)
        for file, call in program.executed_calls()
        if file.full_name(call.func) == function and call.args and not call.args[0].star
    ]
    for file, call in calls:
        file.change(call.args[0], partial(_valued, value=value))
    return bool(calls)


def _valued(arg: Any, value: str) -> Any:
    return arg.with_changes(value=cst.parse_expression(value))
