"""The names that a line of code reads and binds."""

from __future__ import annotations

import dis
import functools
from types import CodeType


@functools.cache
def named_at(code: CodeType, line: int) -> frozenset[str]:
    """The names that a line of the code loads."""
    found, here = set(), False
    for one in dis.get_instructions(code):
        if one.starts_line is not None:
            here = one.starts_line == line
        if here and one.opname.startswith("LOAD_"):
            found.add(str(one.argval))
    return frozenset(found)


def read_and_bound_at(code: CodeType, line: int) -> set[str]:
    """The names that a line both reads and binds: `total = total + loss`."""
    here, read, bound = False, set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.starts_line is not None:
            here = instruction.starts_line == line
        if here and instruction.opname.startswith("LOAD_"):
            read.add(str(instruction.argval))
        elif here and instruction.opname.startswith("STORE_"):
            bound.add(str(instruction.argval))
    return read & bound
