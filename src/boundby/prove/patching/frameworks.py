"""Writes a fix as arguments of the training framework that the user's code calls."""

from __future__ import annotations

from functools import partial

from boundby.fixes.frameworks import Argument, Framework
from boundby.prove.patching.arguments import with_keywords
from boundby.prove.patching.program import Call, Program
from boundby.prove.patching.source_file import CannotWriteError


def framework_of(program: Program) -> Framework | None:
    """The framework whose class the user's code calls to run the training."""
    for framework in Framework:
        if _calls_of(program, framework, framework.runs):
            return framework
    return None


def write_argument(program: Program, framework: Framework, argument: Argument) -> None:
    calls = _calls_of(program, framework, framework.settings)
    if not calls:
        raise CannotWriteError(f"no executed call of {framework.settings[0]} in the user's files")
    for file, call in calls:
        file.change(call, partial(with_keywords, values=argument.values))


def _calls_of(program: Program, framework: Framework, classes: tuple[str, ...]) -> list[Call]:
    return [
        (file, call)
        for file, call in program.executed_calls()
        if (name := file.full_name(call.func).split("."))[0] in framework.packages
        and name[-1] in classes
    ]
