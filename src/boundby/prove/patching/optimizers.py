"""Fused optimizers and gradients set to None, written at their calls."""

from __future__ import annotations

from functools import partial

from boundby.prove.patching.arguments import keyword, with_keywords
from boundby.prove.patching.program import Program, last_name
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix

_TORCH = "torch.optim"


def write_fused(program: Program, fix: ChosenFix) -> None:
    optimizers = fix.objects or program.sites.optimizers
    if not optimizers:
        raise CannotWriteError("no optimizer was seen")
    done = set()
    for optimizer in optimizers:
        if optimizer.module_name and not optimizer.module_name.startswith(_TORCH):
            raise CannotWriteError(f"{optimizer.type_name} is not a class of torch.optim")
        file, call = program.constructor(optimizer)
        # One call may make several, in a loop.
        if call not in done:
            done.add(call)
            drop = ("foreach",) if b"foreach" in file.before else ()
            file.change(call, partial(with_keywords, values={"fused": "True"}, drop=drop))


def write_set_to_none(program: Program, fix: ChosenFix) -> None:
    calls = [
        (file, call)
        for file, call in program.executed_calls()
        if last_name(call.func) == "zero_grad" and call.args
    ]
    if not calls:
        raise CannotWriteError("no executed call of zero_grad has an argument")
    for file, call in calls:
        if keyword(call, "set_to_none") is None:
            file.change(call, lambda updated: updated.with_changes(args=[]))
        else:
            file.change(call, partial(with_keywords, values={"set_to_none": "True"}))
