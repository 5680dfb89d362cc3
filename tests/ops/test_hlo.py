"""Costs of HLO instructions, with the arithmetic beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from boundby import ops
from boundby.model import (
    ConvolutionDimensions,
    Cost,
    HloComputation,
    HloInstruction,
    OpCall,
    Tensor,
    Window,
)


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


def cost(kind: str, opcode: str, inputs: Sequence[Tensor], result: Tensor, **rest: Any) -> Cost:
    """Of an instruction that stands alone; equal operands are different ones."""
    rest.setdefault("operands", tuple(range(len(inputs))))
    instruction = HloInstruction(
        name="one",
        opcode=opcode,
        results=rest.pop("results", (result,)),
        inputs=tuple((one,) for one in inputs),
        **rest,
    )
    found = ops.cost(OpCall(name=f"hlo::{kind}", args=(*inputs, result), hlo=instruction))
    assert found is not None
    return found


def computation(*instructions: HloInstruction) -> HloComputation:
    return HloComputation(instructions=instructions, root=len(instructions) - 1)


def inner(opcode: str, result: Tensor, operands: Sequence[int] = (), **rest: Any) -> HloInstruction:
    return HloInstruction(
        name=opcode, opcode=opcode, results=(result,), operands=tuple(operands), **rest
    )


def test_a_product_counts_two_for_each_multiply_add() -> None:
    a, b, c = (tensor(*s, dtype="bfloat16") for s in ((8, 64, 32), (8, 32, 16), (8, 64, 16)))
    found = cost("dot", "dot", [a, b], c, contracting=(2,))
    assert found.flops == {"matmul.bfloat16": 2 * 8 * 64 * 16 * 32}
    assert found.bytes == 2 * (8 * 64 * 32 + 8 * 32 * 16 + 8 * 64 * 16)


def test_a_library_product_does_not_write_its_scratch_memory() -> None:
    a, b = tensor(64, 32), tensor(32, 16)
    results = (tensor(64, 16), tensor(1 << 20, dtype="int8"))
    found = cost("gemm", "custom-call", [a, b], results[0], contracting=(1,), results=results)
    assert found.bytes_written == 4 * 64 * 16
    assert found.flops == {"matmul.float32": 2 * 64 * 16 * 32}


_NHWC = ConvolutionDimensions(
    input_spatial=(1, 2),
    kernel_input=2,
    output_batch=0,
    output_feature=3,
    output_spatial=(1, 2),
)
_SAME = (Window(size=3, padding_low=1),) * 2


def test_a_convolution_does_not_count_its_padding() -> None:
    image, kernel, output = tensor(2, 8, 8, 16), tensor(3, 3, 16, 32), tensor(2, 8, 8, 32)
    # Of 8 positions x 3 places, two meet the padding.
    expected = 2 * 2 * 32 * 16 * 22 * 22
    options: dict[str, Any] = {"window": _SAME, "convolution": _NHWC}
    found = cost("convolution", "convolution", [image, kernel], output, **options)
    assert found.flops == {"matmul.float32": expected}
    for target, operands, result in (
        ("__cudnn$convForward", [image, kernel], output),
        ("__cudnn$convBackwardInput", [output, kernel], image),
        ("__cudnn$convBackwardFilter", [image, output], kernel),
    ):
        kind = "convolution" if "Forward" in target else "convolution_backward"
        found = cost(kind, "custom-call", operands, result, target=target, **options)
        assert found.flops == {"matmul.float32": expected}


def test_attention_counts_two_products_and_its_backward_five() -> None:
    query = tensor(2, 4, 128, 64, dtype="bfloat16")
    one = 2 * 2 * 4 * 128 * 128 * 64
    options: dict[str, Any] = {"contracting": (3,), "batch": (0, 1)}
    forward = cost("attention", "custom-call", [query] * 3, query, **options)
    assert forward.flops == {"matmul.bfloat16": 2 * one}
    backward = cost("attention_backward", "custom-call", [query] * 4, query, **options)
    assert backward.flops == {"matmul.bfloat16": 5 * one}
    assert backward.repeated == one
    causal = cost("attention", "custom-call", [query] * 3, query, causal=True, **options)
    assert causal.total_flops == pytest.approx(2 * one * 129 / 256)


def test_attention_whose_queries_keys_and_values_are_one_operand() -> None:
    """TransformerEngine's layout: [batch, rows, 3, heads, width]."""
    packed, empty = tensor(2, 128, 3, 4, 64, dtype="bfloat16"), tensor(0, dtype="bfloat16")
    one = 2 * 2 * 4 * 128 * 128 * 64
    options: dict[str, Any] = {"contracting": (3,), "batch": (0, 2)}
    result = tensor(2, 128, 4, 64, dtype="bfloat16")
    found = cost("attention", "custom-call", [packed, empty, empty], result, **options)
    assert found.flops == {"matmul.bfloat16": 2 * one}
    query, pairs = tensor(2, 128, 4, 64, dtype="bfloat16"), tensor(2, 256, 2, 4, 64)
    crossed = cost("attention", "custom-call", [query, pairs, empty], result, **options)
    assert crossed.total_flops == 4 * one


def test_fusion_moves_only_its_operands_and_results() -> None:
    x = tensor(64, 128)
    fused = computation(
        inner("parameter", x, parameter=0),
        inner("exponential", x, [0]),
        inner("multiply", x, [1, 0]),
        inner("reduce", tensor(64), [2, 2]),
    )
    found = cost("fusion(reduce)", "fusion", [x], tensor(64), called=(fused,))
    assert (found.bytes_read, found.bytes_written) == (4 * 64 * 128, 4 * 64)
    assert found.flops == {"vector.float32": 3 * 64 * 128}


def test_the_same_operand_twice_is_read_once() -> None:
    x = tensor(64)
    fused = computation(
        inner("parameter", x, parameter=0),
        inner("parameter", x, parameter=1),
        inner("add", x, [0, 1]),
    )
    twice = cost("fusion(elementwise)", "fusion", [x, x], x, called=(fused,), operands=(0, 0))
    assert twice.bytes_read == 4 * 64
    apart = cost("fusion(elementwise)", "fusion", [x, x], x, called=(fused,))
    assert apart.bytes_read == 2 * 4 * 64


def test_sliced_operand_reads_only_the_slice() -> None:
    table, row = tensor(1000, 64), tensor(1, 64)
    index = tensor(dtype="int32")
    fused = computation(
        inner("parameter", table, parameter=0),
        inner("parameter", index, parameter=1),
        inner("dynamic-slice", row, [0, 1, 1]),
        inner("negate", row, [2]),
    )
    found = cost("fusion(elementwise)", "fusion", [table, index], row, called=(fused,))
    assert found.bytes_read == 4 * 64 + 4
    assert found.bytes_written == 4 * 64


def test_elements_outside_slices_are_not_computed() -> None:
    table, row = tensor(1000, 64), tensor(1, 64)
    index = tensor(dtype="int32")
    fused = computation(
        inner("parameter", table, parameter=0),
        inner("parameter", index, parameter=1),
        inner("exponential", table, [0]),
        inner("dynamic-slice", row, [2, 1, 1]),
    )
    found = cost("fusion(slice)", "fusion", [table, index], row, called=(fused,))
    assert found.flops == {"vector.float32": 64}


def test_an_update_in_place_writes_the_part() -> None:
    cache, row, index = tensor(1000, 64), tensor(1, 64), tensor(dtype="int32")
    parameters = (
        inner("parameter", cache, parameter=0),
        inner("parameter", row, parameter=1),
        inner("parameter", index, parameter=2),
    )
    update = inner("dynamic-update-slice", cache, [0, 1, 2, 2])
    found = cost(
        "fusion(update)",
        "fusion",
        [cache, row, index],
        cache,
        called=(computation(*parameters, update),),
    )
    assert (found.bytes_read, found.bytes_written) == (4 * 64 + 4, 4 * 64)
    # Where the updated whole is then summed, the rest of it is read.
    summed = computation(*parameters, update, inner("reduce", tensor(64), [3, 2]))
    found = cost("fusion(reduce)", "fusion", [cache, row, index], tensor(64), called=(summed,))
    assert found.bytes_read == 4 * 1000 * 64 + 4


def test_loop_costs_its_body_per_iteration() -> None:
    x = tensor(64, 64)
    body = computation(
        inner("parameter", x, parameter=0), inner("dot", x, [0, 0], contracting=(1,))
    )
    found = cost("while", "while", [x], x, called=(body,), trip_count=10)
    assert found.flops == {"matmul.float32": 10 * 2 * 64**3}
    instruction = HloInstruction(name="w", opcode="while", results=(x,), called=(body,))
    assert ops.cost(OpCall(name="hlo::while", hlo=instruction)) is None


def test_conditional_costs_its_largest_branch() -> None:
    x = tensor(64, 64)
    parameter = inner("parameter", x, parameter=0)
    branches = (
        computation(parameter, inner("negate", x, [0])),
        computation(parameter, inner("dot", x, [0, 0], contracting=(1,))),
    )
    found = cost("conditional", "conditional", [x], x, called=branches)
    assert found.flops == {"matmul.float32": 2 * 64**3}


def test_collectives_are_costed_where_they_begin() -> None:
    shard, whole = tensor(128), tensor(1024)
    assert cost("all-gather", "all-gather", [shard], whole).bytes == 4 * (128 + 1024)
    start = cost("all-gather-start", "all-gather-start", [shard], whole, results=(shard, whole))
    assert (start.bytes_read, start.bytes_written) == (4 * 128, 4 * 1024)
    done = cost("all-gather-done", "all-gather-done", [shard, whole], whole)
    assert not done.bytes


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("gemm", "contraction"),
        ("fusion(dot)", "contraction"),
        ("convolution_backward", "contraction"),
        ("attention", "contraction"),
        ("fusion(reduce)", "normalization"),
        ("fusion(elementwise)", "elementwise"),
        ("triton", "elementwise"),
        ("fusion(transpose)", "movement"),
        ("scatter", "movement"),
        ("topk", "movement"),
        ("all-reduce-start", "communication"),
        ("reduce-scatter", "communication"),
        ("collective-permute-done", "communication"),
    ],
)
def test_instructions_have_operator_classes(kind: str, expected: str) -> None:
    assert ops.op_class(f"hlo::{kind}") == expected
