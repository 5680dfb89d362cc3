"""Changes of a whole model, written where it is assigned to a name: compiled, channels last."""

from __future__ import annotations

from functools import partial
from typing import Any

import libcst as cst

from boundby.prove.patching.process_settings import require_torch
from boundby.prove.patching.program import Program
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix, ObjectSite

_CHANNELS_LAST = "memory_format=torch.channels_last"


def write_compiled(program: Program, fix: ChosenFix, mode: str | None = None) -> None:
    """Compile the model in place, so that other names of the model, and the names in its state,
    stay valid."""
    argument = f'mode="{mode}"' if mode is not None else ""
    for model in _models(program, fix):
        bound = program.bound(model)
        bound.file.insert_below(bound.statement, f"{bound.name}.compile({argument})")


def write_channels_last(program: Program, fix: ChosenFix) -> None:
    models = _models(program, fix)
    for model in models:
        bound = program.bound(model)
        require_torch(bound.file)
        bound.file.insert_below(bound.statement, f"{bound.name}.to({_CHANNELS_LAST})")
        for site in model.used or program.sites.forward_calls:
            file, call = program.model_call(site, [model])
            if not call.args or call.args[0].star:
                raise CannotWriteError(f"the model's input at {site.where} is not clear")
            require_torch(file)
            file.change(call.args[0], partial(_converted, code=file.code(call.args[0].value)))


def _converted(arg: Any, code: str) -> Any:
    is_plain = isinstance(arg.value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript))
    value = code if is_plain else f"({code})"
    return arg.with_changes(value=cst.parse_expression(f"{value}.to({_CHANNELS_LAST})"))


def _models(program: Program, fix: ChosenFix) -> list[ObjectSite]:
    models = fix.objects or program.sites.models
    if not models:
        raise CannotWriteError("no model was seen")
    # A loaded model, as for a last evaluation, is not constructed in the source.
    made = [model for model in models if model.made]
    return made or list(models)
