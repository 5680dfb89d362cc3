"""Operators of serving engines, with the arithmetic by hand."""

import pytest

from boundby import ops as costs
from tests.ops.builders import cost, t, unknown


def bf16(*shape: int) -> object:
    return t(*shape, dtype="bfloat16")


def test_decode_reads_each_cache_once() -> None:
    """16 sequences of up to 1,000 keys, 8 key heads of 128 for 32 heads: K and V in two bytes."""
    query, cache = bf16(16, 32, 128), bf16(4000, 16, 8, 128)
    offsets = t(17, dtype="int32")
    arguments = [query, cache, cache, query, offsets, None, None, None, None, None, 1, 1000]
    found = cost("_vllm_fa2_C::varlen_fwd", *arguments, 0.0, 0.1, False, True)
    keys_and_values = 2 * 16 * 1000 * 8 * 128 * 2
    assert found.bytes_read == 16 * 32 * 128 * 2 + keys_and_values
    assert found.bytes_written == 16 * 32 * 128 * 2
    # Two products of one query with 1,000 keys, two FLOPs each multiply-add.
    assert found.flops == {"matmul.bfloat16": 2 * 2 * 16 * 32 * 1000 * 128}
    assert found.upper_bound


def test_prefill_computes_the_causal_triangle() -> None:
    """Two sequences of 100 tokens each, nothing cached before: 100 * 101 / 2 pairs a head."""
    query, cache = bf16(200, 4, 64), bf16(50, 16, 2, 64)
    offsets = t(3, dtype="int32")
    arguments = [query, cache, cache, query, offsets, None, None, None, None, None, 100, 100]
    found = cost("_vllm_fa2_C::varlen_fwd", *arguments, 0.0, 0.1, False, True)
    assert found.flops == {"matmul.bfloat16": pytest.approx(2 * 2 * 2 * 4 * 5050 * 64)}


def test_older_paged_attention_has_its_head_count_as_argument() -> None:
    query, keys, values = bf16(8, 16, 64), bf16(500, 2, 8, 16, 8), bf16(500, 2, 64, 16)
    tables = t(8, 32, dtype="int32")
    lengths = t(8, dtype="int32")
    found = cost(
        "_C::paged_attention_v1", query, query, keys, values, 2, 0.1, tables, lengths, 16, 512
    )
    assert found.bytes_read == 8 * 16 * 64 * 2 + 2 * 8 * 512 * 2 * 64 * 2


def test_experts_read_weights_of_reached_experts() -> None:
    """4 tokens choose 2 of 64 experts: at most 8 are read; each row meets 3 matrices of 32 x 16."""
    tokens, first, second = bf16(4, 32), bf16(64, 32, 32), bf16(64, 32, 16)
    weights, ids = t(4, 2), t(4, 2, dtype="int32")
    found = cost("vllm::outplace_fused_experts", tokens, first, second, weights, ids)
    assert found.flops == {"matmul.bfloat16": 2 * 8 * 3 * 32 * 16}
    matrices = 8 * 3 * 32 * 16 * 2
    assert found.bytes_read == 4 * 32 * 2 + matrices + 4 * 2 * 4 + 4 * 2 * 4
    assert found.bytes_written == 4 * 32 * 2


def test_quantised_matmuls_read_packed_weights() -> None:
    """M = 8, K = 256, N = 512."""
    x, out = bf16(8, 256), bf16(8, 512)
    flops = 2 * 8 * 256 * 512
    fp8, weight = t(8, 256, dtype="float8"), t(256, 512, dtype="float8")
    found = cost("_C::cutlass_scaled_mm", out, fp8, weight, t(1), t(1))
    assert found.flops == {"matmul.float8": flops}
    assert found.bytes_read == 8 * 256 + 256 * 512 + 4 + 4
    packed, zeros = t(256, 64, dtype="int32"), t(2, 64, dtype="int32")
    found = cost("_C::awq_gemm", x, packed, bf16(2, 512), zeros, 8)
    assert found.flops == {"matmul.bfloat16": flops}
    assert found.bytes_read == 8 * 256 * 2 + 256 * 512 // 2 + 2 * 512 * 2 + 2 * 64 * 4
    assert found.bytes_written == 8 * 512 * 2
    marlin = t(16, 1024, dtype="int32")
    found = cost("_C::gptq_marlin_gemm", x, None, marlin, bf16(2, 512), None, 5, 8, 512, 256, True)
    assert found.flops == {"matmul.bfloat16": flops}
    assert found.bytes_read == 8 * 256 * 2 + 256 * 512 // 2 + 2 * 512 * 2
    assert unknown("_C::gptq_marlin_gemm", x, None, marlin, bf16(2, 512))


def test_norms_gates_caches_and_samples_move_each_tensor_once() -> None:
    x, weight = bf16(4, 64), bf16(64)
    found = cost("sgl_kernel::rmsnorm", x, x, weight, 1e-5)
    assert found.bytes == 2 * 4 * 64 * 2 + 64 * 2
    found = cost("_C::fused_add_rms_norm_static_fp8_quant", t(4, 64, dtype="int8"), x, x, weight)
    assert found.bytes_written == 4 * 64 + 4 * 64 * 2
    found = cost("flashinfer::silu_and_mul", bf16(4, 32), x)
    assert found.bytes == 4 * 64 * 2 + 4 * 32 * 2
    slots = t(4, dtype="int64")
    found = cost("_C_cache_ops::concat_and_cache_mla", bf16(4, 64), bf16(4, 8), bf16(9, 72), slots)
    assert (found.bytes_read, found.bytes_written) == (4 * 72 * 2 + 4 * 8, 4 * 72 * 2)
    found = cost("sgl_kernel::top_p_sampling_from_probs", t(4, 1000))
    assert (found.bytes_read, found.bytes_written) == (4 * 1000 * 4, 4 * 4)
    found = cost("_moe_C::moe_sum", bf16(4, 2, 64), x)
    assert found.bytes == 4 * 2 * 64 * 2 + 4 * 64 * 2


def test_engine_all_reduce_is_communication() -> None:
    x = bf16(888, 2880)
    assert costs.op_class("vllm::all_reduce") == "communication"
    assert cost("vllm::all_reduce", x).bytes_read == 888 * 2880 * 2
    assert cost("_C_custom_ar::all_reduce", 1, x, x).bytes_written == 888 * 2880 * 2


def test_norms_of_aiter() -> None:
    """64 rows of 128: four or five FLOPs an element, tensors of two bytes."""
    x, weight, rows = bf16(64, 128), bf16(128), 64 * 128
    for name, arguments in (("rmsnorm", (x, x, weight)), ("rms_norm", (x, weight))):
        found = cost(f"aiter::{name}", *arguments, 1e-6)
        assert found.bytes_read == rows * 2 + 128 * 2 and found.bytes_written == rows * 2
        assert found.flops == {"vector.float32": 4 * rows}
    out, residual, added = bf16(64, 128), bf16(64, 128), bf16(64, 128)
    found = cost("aiter::add_rmsnorm", out, x, residual, added, weight, 1e-6)
    assert found.bytes_read == 2 * rows * 2 + 128 * 2 and found.bytes_written == 2 * rows * 2


def test_prefill_of_aiter_from_a_cache_of_single_positions() -> None:
    """Two sequences of 100 tokens: 100 * 101 / 2 pairs a head."""
    query, cache = bf16(200, 4, 64), bf16(5000, 2, 64)
    offsets, pages = t(3, dtype="int32"), t(256, dtype="int32")
    lists = [offsets, offsets, pages, 100, 100]
    found = cost(
        "aiter::mha_batch_prefill", query, cache, cache, *lists, 0.0, 0.1, 0.0, False, True
    )
    assert found.flops == {"matmul.bfloat16": pytest.approx(2 * 2 * 2 * 4 * 5050 * 64)}
    assert found.bytes_read == 200 * 4 * 64 * 2 + 2 * 2 * 100 * 2 * 64 * 2


def test_cache_write_of_sglang_moves_the_new_rows() -> None:
    rows, cache, places = bf16(32, 1024), bf16(100_000, 1024), t(32, dtype="int64")
    found = cost("sglang::store_cache", rows, rows, cache, cache, places, 2048, 0)
    assert found.bytes_read == 2 * 32 * 1024 * 2 + 32 * 8
    assert found.bytes_written == 2 * 32 * 1024 * 2
