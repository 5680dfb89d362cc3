"""Writes workers and pinned memory at the calls of `DataLoader`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import libcst as cst

from boundby.fixes.loaders import most_workers, spare_workers
from boundby.prove.patching.arguments import keyword, with_keywords
from boundby.prove.patching.program import Call, Program, last_name
from boundby.prove.patching.source_file import CannotWriteError, SourceFile, inner_statements
from boundby.prove.sites import ChosenFix

_PREFETCH = "4"


def write_workers(program: Program, fix: ChosenFix) -> None:
    _write_workers(program, fix, spare_workers())


def write_all_workers(program: Program, fix: ChosenFix) -> None:
    _write_workers(program, fix, most_workers())


def _write_workers(program: Program, fix: ChosenFix, count: int) -> None:
    values = {
        "num_workers": str(count),
        "persistent_workers": "True",
        "prefetch_factor": _PREFETCH,
    }
    if program.device == "cuda":
        values["pin_memory"] = "True"
    _write(program, fix, values)


def write_pinned(program: Program, fix: ChosenFix) -> None:
    _write(program, fix, {"pin_memory": "True"})
    for loader in fix.objects or program.sites.loaders:
        for site in loader.used:
            file = program.file_of(site)
            loop = file.statements_at(site.line)
            if isinstance(loop, cst.For):
                for statement in inner_statements(loop):
                    _copy_without_waiting(file, statement)


def _copy_without_waiting(file: SourceFile, statement: cst.CSTNode) -> None:
    """`x.to(device)` of a batch: in plain assignments at the beginning of the loop's body."""
    if not isinstance(statement, cst.SimpleStatementLine) or not file.is_executed(statement):
        return
    for small in statement.body:
        if not isinstance(small, cst.Assign):
            continue
        values: list[Any] = [small.value]
        if isinstance(small.value, cst.Tuple):
            values = [element.value for element in small.value.elements]
        for value in values:
            if _is_copy(value) and keyword(value, "non_blocking") is None:
                file.change(value, partial(with_keywords, values={"non_blocking": "True"}))


def _is_copy(value: cst.CSTNode) -> bool:
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return False
    if not isinstance(value.func.value, (cst.Name, cst.Subscript)):
        return False
    return last_name(value.func) == "cuda" or (
        last_name(value.func) == "to" and len(value.args) == 1 and not value.args[0].star
    )


def _write(program: Program, fix: ChosenFix, values: Mapping[str, str]) -> None:
    calls = _calls(program, fix)
    if not calls:
        raise CannotWriteError("no executed call makes a DataLoader")
    for file, call in calls:
        file.change(call, partial(with_keywords, values=values))


def _calls(program: Program, fix: ChosenFix) -> list[Call]:
    loaders = fix.objects or program.sites.loaders
    return list(dict.fromkeys(program.constructor(loader) for loader in loaders))
