"""Settings of the whole process, written at the top of the script."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import libcst as cst

from boundby.prove.patching.arguments import with_keywords
from boundby.prove.patching.program import Program
from boundby.prove.patching.source_file import CannotWriteError, SourceFile, Statement
from boundby.prove.sites import ChosenFix

# Variables that libraries read when `import torch` loads them, or later. Allocators read theirs
# before any line of a script runs.
_READ_LATE = ("OMP_", "GOMP_", "KMP_", "PYTORCH_", "CUDA_", "NCCL_", "TORCH")
_BACKENDS = {"sdpa:flash": "flash", "sdpa:cudnn": "cudnn", "sdpa:efficient": "mem_efficient"}


def write_tf32(program: Program, fix: ChosenFix) -> None:
    _allow(program, "torch.backends.cuda.matmul.allow_tf32")
    _allow(program, "torch.backends.cudnn.allow_tf32")
    _write_call(program, "torch.set_float32_matmul_precision", '"high"')


def write_bfloat16_products(program: Program, fix: ChosenFix) -> None:
    _write_call(program, "torch.set_float32_matmul_precision", '"medium"')


def write_one_thread(program: Program, fix: ChosenFix) -> None:
    _write_call(program, "torch.set_num_threads", "1")


def write_attention_backend(program: Program, fix: ChosenFix) -> None:
    wanted = _BACKENDS[fix.fix]
    lines = [
        f"torch.backends.cuda.enable_{name}_sdp({name == wanted})" for name in _BACKENDS.values()
    ]
    insert_below_imports(program.script, *lines)


def write_environment(program: Program, fix: ChosenFix) -> None:
    early = [name for name in fix.environment if not name.startswith(_READ_LATE)]
    if early or not fix.environment:
        raise CannotWriteError("it is read before the script's first line runs")
    file = program.script
    first = next(iter(_after_future(file)), None)
    if first is None:
        raise CannotWriteError("the script has no statement")
    lines = [f'os.environ["{name}"] = "{value}"' for name, value in fix.environment.items()]
    file.insert_above(first, "import os", *lines)


def insert_below_imports(file: SourceFile, *lines: str) -> None:
    """Insert lines below the imports at the top of a file; import torch if the file does not."""
    imports = list(_top_imports(file))
    if not imports:
        raise CannotWriteError(f"{file.path.name} begins without imports")
    blank = "" if any(file.added_below(imports[-1])) else "\n"
    file.insert_below(imports[-1], *torch_import(file), f"{blank}{lines[0]}", *lines[1:])


def require_torch(file: SourceFile) -> None:
    """Make sure that a file imports `torch`."""
    missing = torch_import(file)
    if missing:
        imports = list(_top_imports(file))
        if not imports:
            raise CannotWriteError(f"{file.path.name} does not import torch at its top")
        file.insert_below(imports[-1], *missing)


def torch_import(file: SourceFile) -> list[str]:
    added = any(file.code(statement).strip() == "import torch" for statement in file.added())
    imported = added or any(
        isinstance(small, cst.Import)
        and any(
            alias.asname is None and file.code(alias.name).split(".")[0] == "torch"
            for alias in small.names
        )
        for statement in file.module.body
        if isinstance(statement, cst.SimpleStatementLine) and file.is_executed(statement)
        for small in statement.body
    )
    return [] if imported else ["import torch"]


def _write_call(program: Program, function: str, argument: str) -> None:
    """Give the executed calls of a function this argument, or add one below the imports."""
    calls = [
        (file, call)
        for file, call in program.executed_calls()
        if file.full_name(call.func) == function and len(call.args) == 1
    ]
    for file, call in calls:
        file.change(call.args[0], partial(_with_value, value=argument))
    if not calls:
        insert_below_imports(program.script, f"{function}({argument})")


def _with_value(arg: Any, value: str) -> Any:
    return arg.with_changes(value=cst.parse_expression(value))


def _allow(program: Program, setting: str) -> None:
    """Set a flag to True where the program sets it."""
    for file in program.files.values():
        for assign in file.find(cst.Assign):
            if file.is_executed(assign) and file.full_name(assign.targets[0].target) == setting:
                file.change(assign.value, lambda _: cst.Name("True"))


def _after_future(file: SourceFile) -> Iterator[Statement]:
    """The statements of a file behind its docstring and its imports from `__future__`."""
    for place, statement in enumerate(file.module.body):
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        is_docstring = (
            place == 0
            and isinstance(small, cst.Expr)
            and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
        )
        is_future = (
            isinstance(small, cst.ImportFrom)
            and small.module is not None
            and small.module.value == "__future__"
        )
        if not (is_docstring or is_future) and isinstance(
            statement, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        ):
            yield statement


def _top_imports(file: SourceFile) -> Iterator[Statement]:
    """The executed imports at the top level, up to the first function, class or loop."""
    for statement in file.module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef, cst.For, cst.While)):
            return
        if (
            isinstance(statement, cst.SimpleStatementLine)
            and all(isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body)
            and file.is_executed(statement)
        ):
            yield statement


def write_no_autocast(program: Program, fix: ChosenFix) -> None:
    """Switched off on this kind of device: on another, autocast may make it fast."""
    written = False
    for file, call in program.executed_calls():
        if file.full_name(call.func) not in ("torch.autocast", "torch.amp.autocast", _MODE):
            continue
        named = {arg.keyword.value: arg.value for arg in call.args if arg.keyword}
        first = call.args[0] if call.args else None
        device = first.value if first and not first.keyword else named.get("device_type")
        positional = [arg for arg in call.args if not arg.keyword]
        if device is None or len(positional) > 2 or any(arg.star for arg in positional):
            continue
        if isinstance(device, cst.SimpleString):
            if device.evaluated_value != program.device:
                continue
            off = "False"
        else:
            off = f'{file.code(device)} != "{program.device}"'
        file.change(call, partial(with_keywords, values={"enabled": off}))
        written = True
    if not written:
        raise CannotWriteError("no executed call of torch.autocast was found")


_MODE = "torch.amp.autocast_mode.autocast"
