"""What compiled code calls, in which order, and the user's lines it came from.

On a CPU a profile shows only that compiled code has called something written in C; and a product
that it calls has the line where the compiled function was called. The code that Inductor wrote says
more: each compiled graph carries the source of the function that calls its kernels, with the shapes
of all their arguments, and notes of the lines behind each call.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boundby.capture.torch.provenance import GONE, lines_behind, living_graphs

if TYPE_CHECKING:
    from boundby.model import OpCall, Tensor

_KEY, _SOURCE = "_fx_graph_cache_key", "source_code"
_PREFIX = "cpp_fused_"
_SIGNATURE = re.compile(r"void\s+kernel\(([^)]*)\)")
_UPDATED = "in_out_ptr"
_MADE = ("empty_strided_cpu", "empty_strided_cuda", "rand_strided")
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "at::Half": "float16",
    "at::BFloat16": "bfloat16",
    "bool": "bool",
    **{f"{kind}{bits}_t": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
_HANDLES = re.compile(r"# \[Provenance debug handles\] (.+)")
Layout = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """The calls of a compiled graph.

    `kernels` are those in C++, in the order in which they are called; `lines` are the lines behind
    each call, in order, by the name of the callee: `addmm`, `cpp_fused_gelu_0`.
    """

    kernels: list[OpCall]
    lines: dict[str, list[str | None]]

    @property
    def is_of_another_script(self) -> bool:
        """Whether lines that it was compiled from are gone: it came from a cache."""
        return any(GONE in lines for lines in self.lines.values())


# The key by which the profile names a graph.
CompiledGraphs = dict[str, CompiledGraph]


def compiled_graphs() -> CompiledGraphs:
    """Every graph that is compiled now, as far as its code can be read."""
    found: CompiledGraphs = {}
    for graph in living_graphs():
        key, source = (getattr(graph, name, None) for name in (_KEY, _SOURCE))
        if isinstance(key, str) and isinstance(source, str):
            with contextlib.suppress(SyntaxError, ValueError):
                lines = lines_of(source, lines_behind(graph))
                found[key] = CompiledGraph(kernels=kernels_of(source), lines=lines)
    return found


def lines_of(source: str, behind: Mapping[str, str | None]) -> dict[str, list[str | None]]:
    """The line behind each call of generated code, in order, by the name of the callee."""
    found: dict[str, list[str | None]] = {}
    for handles in _HANDLES.findall(source):
        for handle in handles.split(", "):
            # extern_kernels.addmm:3, torch.ops.aten.convolution_backward.default:7
            name = handle.partition(":")[0].removesuffix(".default").rpartition(".")[2]
            found.setdefault(name, []).append(behind.get(handle))
    return found


def kernels_of(source: str) -> list[OpCall]:
    """The kernels that generated code calls, each with its tensors; none if shapes change."""
    # Loads numpy: not before the script has ended.
    from boundby.model import OpCall

    tree = ast.parse(source)
    types = dict(_types(tree))
    shapes = _Shapes()
    for statement in _statements(tree, "get_args", "benchmark_compiled_module"):
        # The inputs of the graph, as the code's own test harness creates them.
        shapes.follow(statement)
    calls: list[OpCall] = []
    for statement in _statements(tree, "call"):
        shapes.follow(statement)
        match statement:
            case ast.Expr(ast.Call(func=ast.Name(name), args=args)) if name in types:
                tensors: list[Tensor | None] = []
                for argument, (dtype, is_updated) in zip(args, types[name], strict=True):
                    # What is updated is read and written: it occurs twice.
                    tensors += [shapes.of(argument, dtype)] * (2 if is_updated else 1)
                known = tuple(tensor for tensor in tensors if tensor is not None)
                calls.append(OpCall(name=name, args=known if len(known) == len(tensors) else ()))
    return calls


def _types(tree: ast.Module) -> Iterator[tuple[str, list[tuple[str | None, bool]]]]:
    """The dtypes of each kernel's arguments, and whether it updates them in place."""
    for statement in tree.body:
        match statement:
            case ast.Assign(
                [ast.Name(name)],
                ast.Call(args=[ast.List(types), ast.Constant(str(code)), *_]),
            ) if name.startswith(_PREFIX):
                signature = _SIGNATURE.search(code)
                given = signature.group(1).split(",") if signature else []
                words = [str(ast.literal_eval(one)) for one in types]
                updated = [_UPDATED in one for one in given] or [False] * len(words)
                dtypes = [_dtype(word) for word in words]
                yield name, list(zip(dtypes, updated, strict=False))


def _dtype(word: str) -> str | None:
    """The dtype that a pointer points to; None for a plain number."""
    name = word.removeprefix("const ").removesuffix("*").strip()
    return _DTYPES.get(name, name) if word.endswith("*") else None


def _statements(tree: ast.Module, *names: str) -> list[ast.stmt]:
    """The statements of the first function with one of these names: `call` runs the graph."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            return node.body
    return []


class _Shapes:
    """Shapes and strides by name, in the order of the code."""

    def __init__(self) -> None:
        self._known: dict[str, Layout] = {}

    def follow(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(ast.Call(ast.Name("assert_size_stride"), [ast.Name(name), *sizes])):
                self._note(name, sizes)
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("reinterpret_tensor"), args)):
                self._note(name, args[1:])
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name(made), sizes)) if made in _MADE:
                self._note(name, sizes)
            case ast.Assign([ast.Name(name)], ast.Name(other)) if other in self._known:
                self._known[name] = self._known[other]

    def of(self, argument: ast.expr, dtype: str | None) -> Tensor | None:
        match argument:
            case ast.Name(name):
                found = self._known.get(name)
            case ast.Call(ast.Name("reinterpret_tensor"), [_, *sizes]):
                found = _numbers(sizes)
            case _:
                found = None
        if found is None or dtype is None:
            return None
        from boundby.model import Tensor

        return Tensor(shape=found[0], dtype=dtype, strides=found[1])

    def _note(self, name: str, sizes: list[ast.expr]) -> None:
        found = _numbers(sizes)
        if found is not None:
            self._known[name] = found


def _numbers(sizes: list[ast.expr]) -> Layout | None:
    """Shape and strides, which come first; None for those known only at run time."""
    with contextlib.suppress(ValueError):
        shape, strides = (tuple(map(int, ast.literal_eval(one))) for one in sizes[:2])
        return shape, strides
    return None
