"""Lines of the script that create a float64 tensor from no float64 tensor, or convert a module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

# The values of names, by a function's name and first line.
Scopes = Mapping[tuple[str, int], Mapping[str, Any]]


def scopes_on_stack(file: str) -> Scopes:
    """The names of the functions of a file that are running."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if str(Path(code.co_filename).absolute()) == file and code.co_name != "<module>":
            found[code.co_name, code.co_firstlineno] = {**frame.f_globals, **frame.f_locals}
        frame = frame.f_back
    return found


def float64_entries(tree: ast.AST, names: Mapping[str, Any], scopes: Scopes) -> Iterator[int]:
    """Lines that assign a float64 tensor to a name and read none, or convert a module; only if the
    names' values are known: at the top of a module, and in functions that are running."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            inner = scopes.get((node.name, first))
            if inner is not None:
                yield from float64_entries(node, inner, scopes)
        elif isinstance(node, ast.Assign | ast.Expr) and _converts(names, node.value):
            yield node.lineno
        elif isinstance(node, ast.Assign):
            if any(_is_double(names, target) for target in node.targets) and not _is_double(
                names, node.value
            ):
                yield node.lineno
        elif not isinstance(node, ast.ClassDef | ast.Lambda):
            yield from float64_entries(node, names, scopes)


def _converts(names: Mapping[str, Any], node: ast.AST) -> bool:
    """Whether it converts a module that has float64 parameters now, and is not only moved."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in ("double", "to", "type") or not isinstance(node.func.value, ast.Name):
        return False
    torch = sys.modules["torch"]
    module = names.get(node.func.value.id)
    if not isinstance(module, torch.nn.Module):
        return False
    if not any(one.dtype == torch.float64 for one in module.parameters()):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    return node.func.attr != "to" or any(_is_dtype(names, one) for one in given)


def _is_dtype(names: Mapping[str, Any], node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("float64", "double", "dtype")
    return isinstance(node, ast.Name) and names.get(node.id) == sys.modules["torch"].float64


def _is_double(names: Mapping[str, Any], node: ast.AST) -> bool:
    """Whether one of the names in it is a float64 tensor."""
    torch = sys.modules["torch"]
    found = (names.get(one.id) for one in ast.walk(node) if isinstance(one, ast.Name))
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in found)
