"""FLOPs of instructions, and of whole computations.

Products count two for each multiply-add with an element (not with padding), other arithmetic one
for each element of the result, also for a transcendental function. In a fusion, an instruction of
whose result only slices or gathered rows are used counts for those. A loop counts its body as often
as it runs; a conditional counts its largest branch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from boundby.model import (
    ConvolutionDimensions,
    HloComputation,
    HloInstruction,
    Tensor,
    Window,
)
from boundby.ops.contraction import matrix_flops
from boundby.ops.hlo.traffic import elements, needed_elements
from boundby.ops.registry import NotRecordedError

Flops = dict[str, float]

_COMPARISONS = {"select", "compare", "clamp", "and", "or", "not", "xor", "map"}
_ONE_OPERAND = {"negate", "abs", "sign", "floor", "ceil", "sqrt", "rsqrt", "cbrt", "erf"}
_TWO_OPERANDS = {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum"}
_TRANSCENDENTAL = {"power", "atan2", "sine", "cosine", "tan", "tanh", "logistic", "log"}
_ARITHMETIC = frozenset(
    _COMPARISONS
    | _ONE_OPERAND
    | _TWO_OPERANDS
    | _TRANSCENDENTAL
    | {"exponential", "exponential-minus-one", "log-plus-one"}
    | {"round-nearest-even", "round-nearest-afz"}
    | {"shift-left", "shift-right-logical", "shift-right-arithmetic"}
)
_INNER = frozenset({"fusion", "call", "async-start"})
_MOST_PAIRS = 20_000_000  # memory limit


def total(parts: Sequence[Flops]) -> Flops:
    flops: Flops = {}
    for part in parts:
        for unit, amount in part.items():
            flops[unit] = flops.get(unit, 0.0) + amount
    return flops


def vector(results: Sequence[Tensor], operations: float) -> Flops:
    """Arithmetic outside of the matrix units; 16-bit values are computed in float32."""
    if not operations or not any("float" in tensor.dtype for tensor in results):
        return {}
    wide = any(tensor.dtype == "float64" for tensor in results)
    return {f"vector.{'float64' if wide else 'float32'}": float(operations)}


def computation_flops(computation: HloComputation) -> Flops:
    instructions = computation.instructions
    return total(
        [
            instruction_flops(
                instruction,
                tuple(
                    instructions[at].results if 0 <= at < len(instructions) else ()
                    for at in instruction.operands
                ),
            )
            for instruction in instructions
        ]
    )


def fusion_flops(computation: HloComputation) -> Flops:
    """The FLOPs of a fused computation; elementwise arithmetic counts only for the elements that
    are needed."""
    needed = needed_elements(computation)
    parts = [computation_flops(computation)]
    for instruction, need in zip(computation.instructions, needed, strict=True):
        size = elements(instruction.results)
        if instruction.opcode in _ARITHMETIC and 0 < need < size:
            parts.append(_times(vector(instruction.results, size), need / size - 1))
    return total(parts)


def instruction_flops(instruction: HloInstruction, inputs: Sequence[tuple[Tensor, ...]]) -> Flops:
    """`inputs` are the leaves of its operands."""
    match instruction.opcode:
        case "dot":
            return product_flops(instruction, inputs[0][0])
        case "convolution":
            if instruction.convolution is None:
                raise NotRecordedError("a convolution without dimensions")
            return convolution_flops(
                instruction,
                instruction.convolution,
                inputs[0][0],
                inputs[1][0],
                instruction.results[0],
            )
        case "reduce" | "all-reduce" | "reduce-scatter":
            operands = [leaves[0] for leaves in inputs[: max(1, len(inputs) // 2)] if leaves]
            return vector(instruction.results, sum(tensor.elements for tensor in operands))
        case "reduce-window" | "select-and-scatter":
            reach = math.prod(window.size for window in instruction.window)
            return vector(
                instruction.results, sum(t.elements for t in instruction.results[:1]) * reach
            )
        case "scatter":
            return vector(
                instruction.results, inputs[-1][0].elements if inputs and inputs[-1] else 0
            )
        case "while":
            times = 1 if instruction.trip_count is None else instruction.trip_count
            return _times(total([computation_flops(inner) for inner in instruction.called]), times)
        case "conditional":
            branches = [computation_flops(inner) for inner in instruction.called]
            return max(branches, key=lambda flops: sum(flops.values()), default={})
    if instruction.opcode == "fusion":
        return total([fusion_flops(inner) for inner in instruction.called])
    if instruction.opcode in _INNER:
        return total([computation_flops(inner) for inner in instruction.called])
    if instruction.opcode in _ARITHMETIC:
        return vector(instruction.results, sum(tensor.elements for tensor in instruction.results))
    return {}


def _times(flops: Flops, times: float) -> Flops:
    return {unit: amount * times for unit, amount in flops.items()}


def product_flops(instruction: HloInstruction, left: Tensor) -> Flops:
    """Two for each element of the result and of the contracted dimensions."""
    if instruction.contracting is None:
        raise NotRecordedError("a product without dimensions")
    depth = math.prod(left.shape[at] for at in instruction.contracting)
    return matrix_flops(left.dtype, instruction.results[0].elements * depth)


def convolution_flops(
    instruction: HloInstruction,
    dimensions: ConvolutionDimensions,
    image: Tensor,
    kernel: Tensor,
    output: Tensor,
) -> Flops:
    """Two for each pair of an output and an input element that a weight joins."""
    pairs = 1.0
    for at, window in enumerate(instruction.window):
        pairs *= joined(
            window,
            image.shape[dimensions.input_spatial[at]],
            output.shape[dimensions.output_spatial[at]],
        )
    outer = output.shape[dimensions.output_batch] * output.shape[dimensions.output_feature]
    return matrix_flops(image.dtype, pairs * outer * kernel.shape[dimensions.kernel_input])


def joined(window: Window, input_size: int, output_size: int) -> int:
    """Along one dimension: pairs of an output position and a place in the window that contains an
    element, neither padding nor a gap between elements."""
    if output_size * window.size > _MOST_PAIRS:
        return output_size * window.size
    first = np.arange(output_size, dtype=np.int64)[:, None] * window.stride - window.padding_low
    at = first + np.arange(window.size, dtype=np.int64)[None, :] * window.dilation
    reach = (input_size - 1) * window.base_dilation
    return int(((at >= 0) & (at <= reach) & (at % window.base_dilation == 0)).sum())
