"""Keeps the frames of boundby's hooks out of the places that warnings name.

`warnings.warn(..., stacklevel=2)` counts frames to find the line that it names. A hook around a
call of torch would be counted, and named instead of the script's line; with the place, the filters
and the rule that a warning is shown once per line would apply to the wrong one. Python's warnings
skip the frames of its import system, which they recognise by these words in the file's name.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TypeVar

from boundby.capture.own_files import HIDDEN_FROM_WARNINGS

Owner = TypeVar("Owner", bound=type)


def skipped_by_warnings(owner: Owner) -> Owner:
    """The class, with every function in it, and inside those, skipped when a warning counts
    frames."""
    for value in vars(owner).values():
        if isinstance(value, FunctionType):
            value.__code__ = _renamed(value.__code__)
    return owner


def _renamed(code: CodeType) -> CodeType:
    inner = tuple(_renamed(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=code.co_filename + HIDDEN_FROM_WARNINGS, co_consts=inner)
