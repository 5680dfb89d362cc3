"""Compulsory bytes of a fusion: the parts of its operands that the result depends on, and the
result.

Values inside the fusion cause no traffic. If only slices or gathered rows of an operand are used,
only those are read; if a result is an operand with a part overwritten, only that part is written,
because XLA makes it in the operand's memory.
"""

from __future__ import annotations

from boundby.model import DTYPE_BYTES, Cost, HloComputation, HloInstruction, Tensor

_SLICING = frozenset({"slice", "dynamic-slice", "gather"})
_UPDATING = frozenset({"dynamic-update-slice", "scatter"})
_VIEWS = frozenset({"bitcast", "reshape", "copy", "convert", "get-tuple-element", "transpose"})
# Instructions that need all of their operands for any part of their result.
_WHOLE = frozenset({"dot", "convolution", "sort", "fft", "while", "conditional", "custom-call"})
_MOST_WRITTEN = 64  # depth limit: nested tuples of a damaged program end


def elements(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.elements for tensor in tensors)


def fusion_traffic(instruction: HloInstruction, computation: HloComputation) -> Cost:
    """Bytes of the operands that are needed and of the results that are written."""
    instructions = computation.instructions
    need = needed_elements(computation)
    read = 0.0
    partial = False
    for at, one in enumerate(instructions):
        if one.opcode != "parameter" or one.parameter is None:
            continue
        if not _is_first(instruction, one.parameter):
            continue
        total = elements(one.results)
        size = sum(tensor.bytes for tensor in one.results)
        share = min(1.0, need[at] / total) if total else 0.0
        partial |= _is_gathered(at, instructions)
        read += size * share
    written, updated = _written(computation)
    # A sum into gathered places reads them first.
    return Cost(bytes_read=read + updated, bytes_written=written, upper_bound=partial)


def _is_first(instruction: HloInstruction, parameter: int) -> bool:
    """Whether an operand occurs for the first time: the same one twice is read once."""
    operands = instruction.operands
    return parameter >= len(operands) or operands[parameter] in (parameter, -1)


def _is_gathered(at: int, instructions: tuple[HloInstruction, ...]) -> bool:
    """Whether elements at data-dependent places are read from it, possibly the same ones
    repeatedly."""
    return any(
        instruction.opcode == "gather" and instruction.operands[:1] == (at,)
        for instruction in instructions
    )


def needed_elements(computation: HloComputation) -> list[float]:
    """How many elements of each instruction's result are needed, from the root backwards."""
    instructions = computation.instructions
    need = [0.0] * len(instructions)
    need[computation.root] = float(elements(instructions[computation.root].results))
    in_place = {
        _behind_views(leaf, instructions) for leaf in _leaves(computation.root, instructions, 0)
    }
    # Operands precede their users.
    for at in range(len(instructions) - 1, -1, -1):
        user = instructions[at]
        size = elements(user.results)
        used = min(need[at], float(size))
        if not used:
            continue
        for position, operand in enumerate(user.operands):
            if 0 <= operand < at:
                whole = elements(instructions[operand].results)
                if position == 0 and at in in_place and user.opcode in _UPDATING:
                    continue  # the result is made in its memory
                needed_part = _needed_part(user, position, used, size, whole, instructions)
                need[operand] = min(need[operand] + needed_part, float(whole))
    return need


def _needed_part(
    user: HloInstruction,
    position: int,
    used: float,
    size: int,
    whole: int,
    instructions: tuple[HloInstruction, ...],
) -> float:
    """How much of an operand an instruction needs for a part of its result."""
    if user.opcode in _SLICING:
        return used if position == 0 else float(whole)
    if user.opcode in _UPDATING:
        update = 1 if user.opcode == "dynamic-update-slice" else 2
        if position == 0:
            return max(0.0, used - _size_of(user, update, instructions))
        return float(whole)
    if user.opcode in ("broadcast", *_WHOLE):
        return float(whole)
    return whole * used / size


def _size_of(user: HloInstruction, position: int, instructions: tuple[HloInstruction, ...]) -> int:
    if position >= len(user.operands) or not 0 <= user.operands[position] < len(instructions):
        return 0
    return elements(instructions[user.operands[position]].results)


def _written(computation: HloComputation) -> tuple[float, float]:
    """Bytes of the results that are written, and of those that are read because they are added to.

    A result that is an unchanged part of an operand is not written.
    """
    instructions = computation.instructions
    written = updated = 0.0
    for leaf in _leaves(computation.root, instructions, 0):
        instruction = instructions[leaf]
        if instruction.opcode == "parameter":
            continue
        source = _behind_views(leaf, instructions)
        behind = instructions[source]
        if behind.opcode in _UPDATING:
            update = 1 if behind.opcode == "dynamic-update-slice" else 2
            width = max((DTYPE_BYTES.get(t.dtype, 0) for t in instruction.results), default=0)
            size = float(_size_of(behind, update, instructions) * width)
            written += size
            updated += size if behind.opcode == "scatter" else 0.0
        else:
            written += sum(tensor.bytes for tensor in instruction.results)
    return written, updated


def _leaves(at: int, instructions: tuple[HloInstruction, ...], depth: int) -> list[int]:
    instruction = instructions[at]
    if instruction.opcode != "tuple" or depth > _MOST_WRITTEN:
        return [at]
    leaves: list[int] = []
    for operand in instruction.operands:
        if 0 <= operand < at:
            leaves += _leaves(operand, instructions, depth + 1)
    return leaves


def _behind_views(at: int, instructions: tuple[HloInstruction, ...]) -> int:
    """The instruction whose result a chain of views and conversions shows."""
    while instructions[at].opcode in _VIEWS and instructions[at].operands[:1]:
        operand = instructions[at].operands[0]
        if not 0 <= operand < at:
            break
        at = operand
    return at
