"""Fused attention: the switch of transformers' models, `need_weights=False` of torch's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from boundby.prove.patching.arguments import keyword, with_keywords
from boundby.prove.patching.program import Call, Program, last_name
from boundby.prove.patching.source_file import CannotWriteError, SourceFile
from boundby.prove.sites import ChosenFix

_SWITCH = "attn_implementation"
_MADE_BY = ("from_pretrained", "from_config")
_TORCH_ATTENTION = "torch.nn.MultiheadAttention"


def write_sdpa(program: Program, fix: ChosenFix) -> None:
    calls = list(_switched(program)) or list(_made(program, fix))
    written = bool(calls)
    for file, call in calls:
        file.change(call, partial(with_keywords, values={_SWITCH: '"sdpa"'}))
    for file, call in _calls_of_torchs(program):
        file.change(call, partial(with_keywords, values={"need_weights": "False"}))
        written = True
    if not written:
        raise CannotWriteError("no executed call chooses the attention implementation")


def _switched(program: Program) -> Iterator[Call]:
    """Calls that choose another implementation."""
    for file, call in program.executed_calls():
        if keyword(call, _SWITCH) is not None:
            yield file, call


def _made(program: Program, fix: ChosenFix) -> Iterator[Call]:
    """The calls that make the models, or the configurations they are made from."""
    calls = [
        (file, call)
        for model in fix.objects or program.sites.models
        for site in model.made[:1]
        for file, call in program.calls_at(site)
        if last_name(call.func) in _MADE_BY
    ]
    if not calls:
        calls = [
            (file, call)
            for file, call in program.executed_calls()
            if (name := file.full_name(call.func)).startswith("transformers.")
            and name.endswith("Config")
        ]
    yield from dict.fromkeys(calls)


def _calls_of_torchs(program: Program) -> Iterator[Call]:
    """Calls of `nn.MultiheadAttention` whose weights are not used."""
    for file in program.files.values():
        modules = {
            file.code(assign.targets[0].target)
            for assign in file.find(cst.Assign)
            if isinstance(assign.value, cst.Call)
            and file.full_name(assign.value.func) == _TORCH_ATTENTION
        }
        for call in file.executed_calls():
            if file.code(call.func) in modules and _weights_are_left(file, call):
                yield file, call


def _weights_are_left(file: SourceFile, call: cst.Call) -> bool:
    """`attention(...)[0]`, or `y, _ = attention(...)`."""
    if keyword(call, "need_weights") is not None or any(arg.star for arg in call.args):
        return False
    parent = file.parent(call)
    if isinstance(parent, cst.Subscript):
        return file.code(parent).endswith("[0]")
    if not isinstance(parent, cst.Assign):
        return False
    target = parent.targets[0].target
    return (
        isinstance(target, cst.Tuple)
        and len(target.elements) == 2
        and file.code(target.elements[1].value) == "_"
    )
