"""The programs of a profile by number and name, and their instructions as operator calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from boundby.capture.xplane.hlo import Module, Node, Place, read_module
from boundby.capture.xplane.planes import Plane
from boundby.capture.xplane.wire import DamagedError
from boundby.model import HloComputation, HloInstruction, OpCall, Phase, Tensor

_METADATA = "/host:metadata"
# How far from an instruction without a line, and at how many others, one is looked for.
_NEAR, _MOST_NEAR = 3, 16
_PROTO = "hlo proto"
_NUMBER = re.compile(r"^(?P<name>.*)\((?P<number>-?\d+)\)$")
_LIBRARY_CALLS = (
    (re.compile(r"cublas|gemm|matmul", re.IGNORECASE), "gemm"),
    (re.compile(r"conv\w*Backward|conv\w*bias\w*backward", re.IGNORECASE), "convolution_backward"),
    (re.compile(r"conv", re.IGNORECASE), "convolution"),
    (re.compile(r"(?:fmha|attn|attention).*(?:backward|bwd)", re.IGNORECASE), "attention_backward"),
    (re.compile(r"fmha|attn|attention", re.IGNORECASE), "attention"),
    (re.compile(r"top_?k", re.IGNORECASE), "topk"),
    (re.compile(r"norm", re.IGNORECASE), "norm"),
    (re.compile(r"sort", re.IGNORECASE), "sort"),
    (re.compile(r"triton", re.IGNORECASE), "triton"),
)
# A fusion is named for the first of these that it contains.
_IN_FUSION = (
    ("dot", "dot"),
    ("convolution", "convolution"),
    ("scatter", "scatter"),
    ("sort", "sort"),
    ("reduce", "reduce"),
    ("reduce-window", "reduce"),
    ("gather", "gather"),
    ("dynamic-update-slice", "update"),
    ("rng-bit-generator", "random"),
)
_MOVING = frozenset(
    [
        "parameter",
        "constant",
        "bitcast",
        "reshape",
        "transpose",
        "copy",
        "broadcast",
        "slice",
        "concatenate",
        "pad",
        "reverse",
        "tuple",
        "get-tuple-element",
        "dynamic-slice",
        "iota",
        "convert",
    ]
)
_OPTIMIZERS = re.compile(r"adam|sgd|optax|optimizer|apply_updates|apply_gradients|scale_by_")
_CALLS = r"jvp|transpose|vmap|pmap|jit|pjit|checkpoint|remat\d*|custom_jvp|custom_vjp"
_WRAPPED = re.compile(rf"^(?:{_CALLS})\((.*)\)$")


class Origin(NamedTuple):
    """The place in the user's program that an instruction comes from."""

    source: str
    inside: str
    module: str
    phase: Phase


@dataclass(slots=True)
class Programs:
    """The programs in a profile. Each is decoded when it is first needed."""

    data: bytes
    by_number: dict[int, tuple[int, int]] = field(default_factory=dict)
    by_name: dict[str, list[int]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    roots: tuple[str, ...] = ()
    _known: dict[int, Module | None] = field(default_factory=dict)

    def find(self, number: int, name: str) -> Module | None:
        """A program by its number, or by a name that only one has."""
        if number not in self.by_number:
            same = self.by_name.get(name, [])
            if len(same) != 1:
                return None
            number = same[0]
        if number not in self._known:
            try:
                module = read_module(self.data, *self.by_number[number])
                if module is not None:
                    module.frames.roots = self.roots
                self._known[number] = module
            except DamagedError as error:
                self.damaged.append(f"{name}: damaged at byte {error.offset}: {error.problem}")
                self._known[number] = None
        return self._known[number]


def read_programs(data: bytes, planes: list[Plane], roots: tuple[str, ...] = ()) -> Programs:
    programs = Programs(data, roots=roots)
    for plane in planes:
        if not plane.name.startswith(_METADATA):
            continue
        for key, entry in plane.names.items():
            stats = plane.stats_of(entry.stats)
            proto = next((v for n, v in stats.items() if n.replace("_", " ").lower() == _PROTO), 0)
            if not isinstance(proto, tuple):
                continue
            match = _NUMBER.match(entry.name)
            number = stats.get("program_id", int(match["number"][:19]) if match else key)
            number = number if isinstance(number, int) else key
            programs.by_number[number] = proto
            name = match["name"] if match else entry.name
            programs.by_name.setdefault(name, []).append(number)
    return programs


def call_of(module: Module, node: Node) -> OpCall:
    """An instruction as an operator call, with a descriptive name."""
    instruction = module.instruction(node)
    tensors: list[Tensor] = [tensor for leaves in instruction.inputs for tensor in leaves]
    return OpCall(
        name=f"hlo::{kind_of(instruction)}",
        args=(*tensors, *instruction.results),
        hlo=instruction,
    )


def kind_of(instruction: HloInstruction) -> str:
    """The kind of an instruction in a word: an operator's name."""
    opcode = instruction.opcode
    if opcode == "custom-call":
        for pattern, kind in _LIBRARY_CALLS:
            if pattern.search(instruction.target):
                return kind
        return f"custom-call({instruction.target})"
    if opcode in ("fusion", "call", "async-start") and instruction.called:
        inside = _opcodes(instruction.called[0])
        if opcode == "async-start":
            return next(iter(sorted(inside - _MOVING)), opcode)
        for wanted, kind in _IN_FUSION:
            if wanted in inside:
                return f"fusion({kind})"
        if inside <= _MOVING:
            moving = inside & {"transpose", "copy", "convert", "concatenate", "pad", "broadcast"}
            return f"fusion({'transpose' if 'transpose' in moving else 'copy'})"
        return "fusion(elementwise)"
    return opcode


def computes(instruction: HloInstruction) -> bool:
    """Whether it is more than a movement of data."""
    if instruction.opcode == "fusion" and instruction.called:
        return not _opcodes(instruction.called[0]) <= _MOVING
    return instruction.opcode not in _MOVING


def _opcodes(computation: HloComputation) -> set[str]:
    found = set()
    for one in computation.instructions:
        found.add(one.opcode)
        for inner in one.called if one.opcode in ("fusion", "call") else ():
            found |= _opcodes(inner)
    return found


def origin_of(module: Module, node: Node) -> Origin:
    """The user's line, the scope as a module's path, and the phase of an instruction.

    An instruction that the compiler made has none: it gets that of what it calls, of what uses it,
    or of what it uses.
    """
    place = node.place if node.place.frame else _place_near(module, node) or node.place
    lines = module.frames.lines(place.frame)
    return Origin(lines.source, lines.inside, _scope(place.op_name), _phase(place.op_name))


def _place_near(module: Module, node: Node) -> Place | None:
    inner = [one for called in module.called_by(node) for one in called.nodes]
    placed = [one.place for one in inner if one.place.frame]
    if placed:
        return placed[-1]
    for beside in (module.users_of, module.operands_of):
        near = [node]
        for _ in range(_NEAR):
            near = [other for one in near for other in beside(one)][:_MOST_NEAR]
            found = next((one.place for one in near if one.place.frame), None)
            if found is not None:
                return found
    return None


def _scope(op_name: str) -> str:
    """`attn` of "jit(step)/transpose(jvp(attn))/dot_general": named scopes, without the primitive.

    The compiled function is the same for all, and transformations are no places.
    """
    parts = op_name.split(";")[0].split("/")[1:-1]
    scopes = []
    for part in parts:
        while (match := _WRAPPED.match(part)) is not None:
            part = match[1]
        if part and part not in ("while", "body", "cond", "closed_call", "checkpoint"):
            scopes.append(part)
    return ".".join(scopes)


def _phase(op_name: str) -> Phase:
    if "transpose(" in op_name:
        return Phase.BACKWARD
    if "jvp(" in op_name:
        return Phase.FORWARD
    if _OPTIMIZERS.search(op_name):
        return Phase.OPTIMIZER
    return Phase.OTHER
