"""Whether the script reads the result of a call, from the code that follows the call."""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType

# With one of these in the code a name may be read without standing in it.
_ANY_NAME = frozenset({"locals", "globals", "vars", "eval", "exec"})
_STORES = ("STORE_FAST", "STORE_NAME")
_UNPACKS = ("UNPACK_SEQUENCE",)


def is_unread(frame: FrameType | None) -> bool:
    """Whether the result of the call that this frame waits for is dropped, or bound to names that
    nothing reads afterwards: no code of the function, or of the whole file for a module's names."""
    if frame is None:
        return False
    names = _bound_to(frame.f_code, frame.f_lasti)
    return names is not None and not (names | _ANY_NAME) & _read(frame.f_code)


@functools.cache
def _bound_to(code: CodeType, offset: int) -> frozenset[str] | None:
    """The names that the result of the call at this offset is bound to; None if it is used
    otherwise."""
    following = [one for one in dis.get_instructions(code) if one.offset > offset]
    count = 1
    if following and following[0].opname in _UNPACKS:
        count, following = int(following[0].arg or 0), following[1:]
    elif following and following[0].opname == "POP_TOP":
        return frozenset()
    stored = following[:count]
    if len(stored) < count or any(one.opname not in _STORES for one in stored):
        return None
    return frozenset(str(one.argval) for one in stored)


@functools.cache
def _read(code: CodeType) -> frozenset[str]:
    """The names that this code, or code inside it, reads."""
    found = {
        str(one.argval) for one in dis.get_instructions(code) if one.opname.startswith("LOAD_")
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _read(inner)
    return frozenset(found)
