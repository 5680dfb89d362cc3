"""What Dynamo sees of boundby's wrappers: nothing, so that it compiles what it would compile."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

from boundby.capture.torch import graph_recorder, line_tracer
from boundby.runtime.patching import PatchSet


def trace_through(call: Any, patches: PatchSet) -> None:
    """Register the wrapped call of a module as the original one, if Dynamo is already loaded.

    Dynamo remembers the original when it is loaded, and traces into any other.
    """
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if hasattr(module, "unpatched_nn_module_call"):
            patches.swap(module, "unpatched_nn_module_call", lambda _: call)


def exclude_own_frames(owners: Iterable[type]) -> None:
    """Exclude the frames of these classes from Dynamo, but not the frames that they call.

    A compiled module is called through them: taken for the script's, they would be compiled
    instead of the module's forward, and once more when the hooks are removed.
    """
    from torch._dynamo.eval_frame import skip_code

    for owner in owners:
        for code in _codes(owner):
            skip_code(code)
    graph_recorder.hide_from_dynamo()
    line_tracer.hide_from_dynamo()


def unwatched(model: Any) -> Any:
    """The function to compile, without boundby's wrapper."""
    function = getattr(model, "__func__", model)
    plain = vars(function).get("_boundby_unwatched") if hasattr(function, "__dict__") else None
    if plain is None or hasattr(function, "_wrapped_by_lr_sched"):
        return model
    return plain if function is model else types.MethodType(plain, model.__self__)


def _codes(owner: type) -> list[types.CodeType]:
    """The code of every function of a class, including nested ones."""
    found = [
        function.__code__
        for function in vars(owner).values()
        if isinstance(function, types.FunctionType)
    ]
    for code in found:
        found += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return found
