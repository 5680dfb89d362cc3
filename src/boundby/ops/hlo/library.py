"""Custom calls: products, convolutions and attention of the vendors' libraries, other kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from boundby.model import Cost, HloInstruction, Tensor
from boundby.ops.attention import BACKWARD_PRODUCTS, CAUSAL, FORWARD_PRODUCTS, FULL, Shape
from boundby.ops.contraction import matrix_flops
from boundby.ops.hlo.arithmetic import Flops, convolution_flops, product_flops
from boundby.ops.registry import NotRecordedError

_SCRATCH = ("int8", "uint8")


def external(instruction: HloInstruction) -> Cost:
    """Each distinct operand read once, each result written once, without scratch memory."""
    read = sum(
        tensor.bytes
        for at, leaves in enumerate(instruction.inputs)
        if instruction.operands[at : at + 1] in ((at,), (-1,))
        for tensor in leaves
    )
    written = sum(tensor.bytes for tensor in results(instruction))
    return Cost(bytes_read=read, bytes_written=written)


def results(instruction: HloInstruction) -> list[Tensor]:
    """The results of a library call, without the scratch memory that follows them."""
    without_scratch = list(instruction.results)
    if (
        len(without_scratch) > 1
        and without_scratch[-1].dtype in _SCRATCH
        and len(without_scratch[-1].shape) == 1
    ):
        without_scratch.pop()
    return without_scratch


def gemm(instruction: HloInstruction) -> Flops:
    left = _operand(instruction, 0)
    return product_flops(instruction, left)


def convolution(instruction: HloInstruction) -> Flops:
    """Forward, or one of the two gradients, whose dimensions are those of the forward."""
    if instruction.convolution is None:
        raise NotRecordedError("a convolution without dimensions")
    first, second, made = (
        _operand(instruction, 0),
        _operand(instruction, 1),
        instruction.results[0],
    )
    target = instruction.target.lower()
    if "backwardinput" in target:
        image, kernel, output = made, second, first
    elif "backwardfilter" in target:
        image, kernel, output = first, made, second
    else:
        image, kernel, output = first, second, made
    return convolution_flops(instruction, instruction.convolution, image, kernel, output)


def attention(instruction: HloInstruction, *, backward: bool) -> tuple[Flops, float]:
    """FLOPs, and those that recompute the scores.

    Batch, heads, sequence and width of queries and keys follow from the first product.
    """
    query, key, value = _unpacked(*(_operand(instruction, at) for at in range(3)))
    batch = instruction.batch if instruction.batch is not None else (0, 1)
    contracted = instruction.contracting if instruction.contracting else (len(query.shape) - 1,)
    rows = [at for at in range(len(query.shape)) if at not in (*batch, *contracted)]
    if len(rows) != 1 or len(key.shape) != len(query.shape):
        raise NotRecordedError("attention with other dimensions than batch, heads, rows and width")
    width = math.prod(query.shape[at] for at in contracted)
    queries, keys = query.shape[rows[0]], key.shape[rows[0]]
    shape = Shape(
        batch=1,
        heads=math.prod(query.shape[at] for at in batch),
        queries=queries,
        keys=keys,
        width=width,
        value_width=value.shape[contracted[0]] if len(contracted) == 1 else width,
    )
    mask = CAUSAL if instruction.causal else FULL
    products = BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS
    flops = matrix_flops(query.dtype, shape.multiply_adds(products, mask))
    recomputed = sum(matrix_flops(query.dtype, shape.multiply_adds(1, mask)).values())
    return flops, recomputed if backward else 0.0


def _unpacked(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, rows, heads, width], also where all three, or the last two,
    are one operand [batch, rows, number, heads, width] and the others are empty."""

    def part(packed: Tensor) -> Tensor:
        shape = (*packed.shape[:2], *packed.shape[3:])
        return msgspec.structs.replace(packed, shape=shape, strides=None)

    if len(query.shape) == 5:
        return (part(query),) * 3
    return (query, part(key), part(key)) if len(key.shape) == 5 else (query, key, value)


def _operand(instruction: HloInstruction, at: int) -> Tensor:
    inputs: Sequence[tuple[Tensor, ...]] = instruction.inputs
    if at >= len(inputs) or not inputs[at]:
        raise NotRecordedError(f"{instruction.target}: operand {at} was not recorded")
    return inputs[at][0]
