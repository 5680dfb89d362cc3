"""The cost of an instruction, by its kind."""

from __future__ import annotations

import re

import msgspec

from boundby.model import Cost, HloInstruction, OpCall
from boundby.ops.hlo import library
from boundby.ops.hlo.arithmetic import computation_flops, fusion_flops, instruction_flops
from boundby.ops.hlo.traffic import elements, fusion_traffic
from boundby.ops.registry import NotRecordedError, OpClass, family

PREFIX = "hlo::"

_CONTRACTION = re.compile(r"dot|gemm|convolution|attention|cholesky|triangular-solve")
_COMMUNICATION = re.compile(
    r"all-|reduce-scatter|ragged-all|collective-|send|recv|partition-id|replica-id"
)
_NORMALIZATION = re.compile(r"reduce|norm|select-and-scatter")
_MOVEMENT = re.compile(
    r"copy|transpose|gather|scatter|update|slice|concatenate|pad|broadcast|iota|reshape|reverse"
    r"|sort|topk|bitcast|constant|infeed|outfeed"
)
# Only the start of an asynchronous instruction moves data, and instructions that run others are
# costed as those.
_FREE = re.compile(r"-done$|-update$|^control\(|^(?:bitcast|tuple|parameter|get-tuple-element)$")


def op_class(name: str) -> OpClass:
    kind = name.removeprefix(PREFIX)
    if _CONTRACTION.search(kind):
        return "contraction"
    if _COMMUNICATION.match(kind):
        return "communication"
    if _NORMALIZATION.search(kind):
        return "normalization"
    return "movement" if _MOVEMENT.search(kind) else "elementwise"


@family(PREFIX, op_class=op_class)
def call_cost(call: OpCall) -> Cost:
    """The minimum cost of one execution of an instruction."""
    instruction = call.hlo
    if instruction is None:
        raise NotRecordedError(f"{call.name}: no instruction was recorded")
    return _cost(instruction, call.name.removeprefix(PREFIX))


def _cost(instruction: HloInstruction, kind: str) -> Cost:
    if _FREE.search(kind):
        return Cost()
    if instruction.opcode == "custom-call":
        return _library(instruction, kind)
    if instruction.opcode in ("fusion", "call") and instruction.called:
        traffic = fusion_traffic(instruction, instruction.called[0])
        return msgspec.structs.replace(traffic, flops=fusion_flops(instruction.called[0]))
    if instruction.opcode in ("while", "conditional"):
        return _inside(instruction)
    if instruction.opcode.startswith("async-") and instruction.called:
        flops = computation_flops(instruction.called[0])
        return msgspec.structs.replace(_asynchronous(instruction), flops=flops)
    flops = instruction_flops(instruction, instruction.inputs)
    return msgspec.structs.replace(_plain(instruction), flops=flops)


def _library(instruction: HloInstruction, kind: str) -> Cost:
    cost = library.external(instruction)
    match kind:
        case "gemm":
            return msgspec.structs.replace(cost, flops=library.gemm(instruction))
        case "convolution" | "convolution_backward":
            return msgspec.structs.replace(cost, flops=library.convolution(instruction))
        case "attention" | "attention_backward":
            flops, recomputed = library.attention(instruction, backward=kind.endswith("backward"))
            return msgspec.structs.replace(cost, flops=flops, repeated=recomputed)
    return cost


def _plain(instruction: HloInstruction) -> Cost:
    """An instruction at the top level of the program."""
    whole = library.external(instruction)
    match instruction.opcode:
        case "gather" | "dynamic-slice" | "slice":
            size = sum(tensor.bytes for tensor in instruction.results)
            indices = sum(t.bytes for leaves in instruction.inputs[1:] for t in leaves)
            gathered = instruction.opcode == "gather"
            return Cost(bytes_read=size + indices, bytes_written=size, upper_bound=gathered)
        case "dynamic-update-slice":
            size = _bytes(instruction, 1)
            return Cost(bytes_read=size, bytes_written=size)
        case "scatter":
            size = _bytes(instruction, 2)
            return Cost(
                bytes_read=2 * size + _bytes(instruction, 1), bytes_written=size, upper_bound=True
            )
        case "copy-start" | "all-reduce-start" | "all-gather-start" | "collective-permute-start":
            return _asynchronous(instruction)
    return whole


def _asynchronous(instruction: HloInstruction) -> Cost:
    """The operands are among the results of the asynchronous instruction's start."""
    read = sum(tensor.bytes for leaves in instruction.inputs for tensor in leaves)
    made = sum(tensor.bytes for tensor in instruction.results if tensor.shape)
    written = made - read if made > read else made
    return Cost(bytes_read=read, bytes_written=max(0, written))


def _bytes(instruction: HloInstruction, operand: int) -> int:
    leaves = instruction.inputs[operand] if operand < len(instruction.inputs) else ()
    return sum(tensor.bytes for tensor in leaves)


def _inside(instruction: HloInstruction) -> Cost:
    """A loop or a conditional as one: the costs of its instructions, as often as they run."""
    bodies = []
    for computation in instruction.called:
        total = Cost()
        for inner in computation.instructions:
            total += _nested(inner, tuple(computation.instructions))
        bodies.append(total)
    if instruction.opcode == "conditional":
        return max(bodies, key=lambda cost: (cost.total_flops, cost.bytes), default=Cost())
    if instruction.trip_count is None:
        raise NotRecordedError("a loop that does not tell how often it runs")
    total = sum(bodies, Cost())
    times = instruction.trip_count
    return Cost(
        flops={unit: amount * times for unit, amount in total.flops.items()},
        bytes_read=total.bytes_read * times,
        bytes_written=total.bytes_written * times,
        upper_bound=total.upper_bound,
    )


_VIEWS = frozenset(["parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"])


def _nested(instruction: HloInstruction, around: tuple[HloInstruction, ...]) -> Cost:
    """An instruction of a body, with the leaves of its operands."""
    if instruction.opcode in _VIEWS or not (elements(instruction.results) or instruction.called):
        return Cost()
    first = {number: at for at, number in reversed([*enumerate(instruction.operands)])}
    alone = msgspec.structs.replace(
        instruction,
        inputs=tuple(
            around[at].results if 0 <= at < len(around) else () for at in instruction.operands
        ),
        operands=tuple(first[number] for number in instruction.operands),
    )
    kind = (
        instruction.opcode if instruction.opcode != "custom-call" else _kind_of_target(instruction)
    )
    return _cost(alone, kind)


def _kind_of_target(instruction: HloInstruction) -> str:
    if instruction.convolution is not None:
        return "convolution"
    return (
        "gemm"
        if instruction.contracting is not None and instruction.batch is None
        else "custom-call"
    )
