"""Operators that are seen: for as long as steps are profiled, each one makes a Python call.

The profiler notes the line of every call, and `a @ b` makes none: Python goes from the operator
straight into C, and what runs there would be put down to the last line that called something. On
its way Python looks the method up, and what it looks up may be asked how it binds, in Python: that
is the call. It is over before the operator begins, so that nothing of ours stands around it, in
tracebacks, warnings or torch functions; and a method taken from the class itself
(`torch.Tensor.__matmul__`) is torch's own as ever, for tables that hold it and for Dynamo.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from boundby.capture.live.swaps import Swaps

_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "div", "mod", "pow")
_BITWISE = ("and", "or", "xor", "lshift", "rshift")
_METHODS = (
    *(kind + name for kind, name in itertools.product(("", "r", "i"), _BINARY + _BITWISE)),
    *("lt", "le", "eq", "ne", "gt", "ge"),
    *("neg", "pos", "abs", "invert"),
    *("getitem", "setitem"),
    # What `if x:`, `float(x)` and `range(x)` ask a tensor for, and wait for.
    *("bool", "int", "float", "complex", "index"),
)
_ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag")  # those that are operators
_IN_C = frozenset({"method_descriptor", "wrapper_descriptor", "getset_descriptor"})


class _Seen:
    """A method of torch's, found by way of a Python call."""

    __slots__ = ("_original",)

    def __init__(self, original: Any) -> None:
        self._original = original

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self._original.__get__(tensor, owner)


class _SeenAttribute(_Seen):
    """One that can be set as well: `x.real = 0`."""

    __slots__ = ()

    def __set__(self, tensor: Any, value: Any) -> None:
        self._original.__set__(tensor, value)

    def __delete__(self, tensor: Any) -> None:
        self._original.__delete__(tensor)


def show_operators(torch: Any) -> Swaps:
    """Have every operator on a tensor make a call; undo what is returned to have it as before."""
    hide_from_dynamo()
    shown = Swaps()
    methods = [(f"__{name}__", _Seen) for name in _METHODS]
    for name, seen in methods + [(name, _SeenAttribute) for name in _ATTRIBUTES]:
        # Those that torch wrote in Python are calls already.
        if type(getattr(torch.Tensor, name, None)).__name__ in _IN_C:
            shown.swap(torch.Tensor, name, seen)
    return shown


def hide_from_dynamo() -> None:
    """Where Dynamo is loaded, have it pass over our frames: it would compile them one by one.

    That happens in functions that it has given up on, while what they call is still compiled.
    """
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None:
        for call in (_Seen.__get__, _SeenAttribute.__set__, _SeenAttribute.__delete__):
            dynamo.skip_code(call.__code__)
