"""Removes gradient checkpointing where the script applies it."""

from __future__ import annotations

from functools import partial
from typing import Any

import libcst as cst

from boundby.prove.patching.arguments import keyword, with_keywords
from boundby.prove.patching.program import Program, last_name
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_OPTIONS = (
    "use_reentrant",
    "preserve_rng_state",
    "context_fn",
    "determinism_check",
    "debug",
    "early_stop",
)


def write_no_checkpoints(program: Program, fix: ChosenFix) -> None:
    written = False
    for file, call in program.executed_calls():
        name = last_name(call.func)
        if file.full_name(call.func) == _CHECKPOINT and call.args and not call.args[0].star:
            file.change(call, _run_once)
        elif name == "gradient_checkpointing_enable" and isinstance(call.func, cst.Attribute):
            file.change(call, _disabled)
        elif (argument := keyword(call, "gradient_checkpointing")) is not None:
            if file.code(argument.value) == "False":
                continue
            file.change(call, partial(with_keywords, values={"gradient_checkpointing": "False"}))
        else:
            continue
        written = True
    if not written:
        raise CannotWriteError("no executed call of torch.utils.checkpoint in the user's files")


def _run_once(call: Any) -> Any:
    """`checkpoint(block, x, use_reentrant=False)` becomes `block(x)`."""
    function, *rest = call.args
    args = [arg for arg in rest if not (arg.keyword and arg.keyword.value in _OPTIONS)]
    if args and len(args) < len(rest):
        args[-1] = args[-1].with_changes(comma=rest[-1].comma)
    called = function.value
    if not isinstance(called, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
        called = called.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return call.with_changes(func=called, args=args)


def _disabled(call: Any) -> Any:
    name = cst.Name("gradient_checkpointing_disable")
    return call.with_changes(func=call.func.with_changes(attr=name), args=[])
