import pytest

from tests.ops.builders import cost, t, unknown

BF = "bfloat16"
B, H, S, D = 2, 8, 128, 64


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("_flash_attention_forward", (None, None, S, S, 0.0, False)),
        ("_efficient_attention_forward", (None, None, None, S, S, 0.0, 0, True)),
    ],
)
def test_sequence_first_backends_agree_with_heads_first(
    name: str, args: tuple[object, ...]
) -> None:
    q = t(B, S, H, D, dtype=BF)
    reference = t(B, H, S, D, dtype=BF)
    expected = cost(
        "_scaled_dot_product_flash_attention", reference, reference, reference, 0.0, False
    )
    found = cost(name, q, q, q, *args)
    assert (found.flops, found.bytes) == (expected.flops, expected.bytes)


def test_packed_sequences_are_assumed_of_equal_length() -> None:
    # 8192 tokens of 32 sequences: the least is 32 squares of 256, for any longest one.
    q, offsets = t(8192, H, D, dtype=BF), t(33, dtype="int32")
    found = cost("_flash_attention_forward", q, q, q, offsets, offsets, 4096, 4096, 0.0, False)
    assert found.total_flops == 2 * 2 * 32 * H * 256 * 256 * D
    assert found.bytes_read == 3 * 2 * 8192 * H * D
    assert found.bytes_written == 2 * 8192 * H * D + 4 * 8192 * H
    causal = cost("_flash_attention_forward", q, q, q, offsets, offsets, 4096, 4096, 0.0, True)
    assert causal.total_flops == 2 * 2 * 32 * H * (256 * 257 // 2) * D


def test_decode_queries_attend_to_every_cached_key() -> None:
    q, kv, offsets = t(32, H, D, dtype=BF), t(8192, H, D, dtype=BF), t(33, dtype="int32")
    found = cost("_flash_attention_forward", q, kv, kv, offsets, offsets, 1, 4096, 0.0, True)
    assert found.total_flops == 2 * 2 * H * 8192 * D


def test_the_backward_of_packed_sequences_writes_three_gradients() -> None:
    q, offsets, rows = t(8192, H, D, dtype=BF), t(33, dtype="int32"), t(H, 8192)
    flash = (q, q, q, q, q, rows, offsets, offsets, 4096, 4096, 0.0, True)
    found = cost("_flash_attention_backward", *flash)
    assert found.total_flops == 5 * 2 * 32 * H * (256 * 257 // 2) * D
    assert found.bytes_written == 3 * 2 * 8192 * H * D
    one = t(1, 8192, H, D, dtype=BF)
    packed = (one, one, one, one, None, one, offsets, offsets, 4096, 4096, rows, 0.0, None, None, 1)
    efficient = cost("_efficient_attention_backward", *packed)
    assert (efficient.flops, efficient.bytes) == (found.flops, found.bytes)


@pytest.mark.parametrize(("mask_type", "scored"), [(0, 8), (1, 1 + 2), (2, 3 + 4)])
def test_mask_type_selects_the_causal_corner(mask_type: int, scored: int) -> None:
    q, kv = t(1, 2, 1, D, dtype=BF), t(1, 4, 1, D, dtype=BF)
    args = (None, None, None, 2, 4, 0.0, mask_type, False)
    found = cost("_efficient_attention_forward", q, kv, kv, *args)
    assert found.total_flops == 2 * 2 * scored * D


def test_window_attention_counts_a_band() -> None:
    q = t(1, 8, 1, D, dtype=BF)
    # Each token, the two before it and itself: 1 + 2 + 6 x 3.
    args = (None, None, 8, 8, 0.0, True, False, None, 2, 2)
    assert cost("_flash_attention_forward", q, q, q, *args).total_flops == 2 * 2 * 21 * D


def test_keys_behind_a_block_table_are_unknown() -> None:
    q, offsets, table = t(32, H, D, dtype=BF), t(33, dtype="int32"), t(32, 64, dtype="int32")
    pages = t(512, 16, H, D, dtype=BF)
    args = (offsets, offsets, 1, 4096, 0.0, True, False, None, None, None, None, None, table)
    assert unknown("_flash_attention_forward", q, pages, pages, *args)


FORWARD = {
    "flash_attn::_flash_attn_forward": (0.0, 0.125, True, -1, -1, 0.0, None, False),
    "xformers_flash::flash_fwd": (*[None] * 3, S, S, 0.0, 0.125, True, -1, -1, True, None),
}
PACKED_FORWARD = {
    "flash_attn::_flash_attn_varlen_forward": (S, S, 0.0, 0.125, True, -1, -1, 0.0),
    "xformers_flash::flash_fwd": (None, S, S, 0.0, 0.125, True, -1, -1, True, None),
}


@pytest.mark.parametrize("name", FORWARD)
def test_flash_attn_package_costs_the_same_as_torch(name: str) -> None:
    q, kv = t(B, S, H, D, dtype=BF), t(B, S, 2, D, dtype=BF)  # four queries to a key
    expected = cost("_flash_attention_forward", q, kv, kv, None, None, S, S, 0.0, True)
    assert expected.total_flops == 2 * 2 * B * H * (S * (S + 1) // 2) * D
    assert cost(name, q, kv, kv, *FORWARD[name]) == expected


@pytest.mark.parametrize("name", PACKED_FORWARD)
def test_flash_attn_package_accepts_packed_sequences(name: str) -> None:
    q, at = t(B * S, H, D, dtype=BF), t(B + 1, dtype="int32")
    expected = cost("_flash_attention_forward", q, q, q, at, at, S, S, 0.0, True)
    assert cost(name, q, q, q, at, at, *PACKED_FORWARD[name]) == expected


def test_flash_attn_backward_costs_the_same_as_torch() -> None:
    q, rows = t(B, S, H, D, dtype=BF), t(B, H, S)
    five = (q, q, q, q, q, rows)
    expected = cost("_flash_attention_backward", *five, None, None, S, S, 0.0, True)
    numbers = (0.0, 0.125, True, -1, -1, 0.0, None, False)
    assert cost("flash_attn::_flash_attn_backward", *five, q, q, q, *numbers) == expected
    none = (None, None, S, S, 0.0, 0.125, True, -1, -1)
    assert cost("xformers_flash::flash_bwd", False, *five, *none) == expected


def test_flash_attn_backward_accepts_packed_sequences() -> None:
    q, rows, at = t(B * S, H, D, dtype=BF), t(H, B * S), t(B + 1, dtype="int32")
    five = (q, q, q, q, q, rows)
    expected = cost("_flash_attention_backward", *five, at, at, S, S, 0.0, True)
    numbers = (S, S, 0.0, 0.125, True, -1, -1)
    packed = cost("flash_attn::_flash_attn_varlen_backward", *five, q, q, q, at, at, *numbers)
    assert packed == expected
    assert cost("xformers_flash::flash_bwd", True, *five, at, at, *numbers) == expected


def test_flash_attn_window_counts_a_band() -> None:
    q = t(1, 8, 1, D, dtype=BF)
    found = cost("flash_attn::_flash_attn_forward", q, q, q, 0.0, 0.125, True, 2, 2, 0.0)
    assert found.total_flops == 2 * 2 * (1 + 2 + 6 * 3) * D
    # Without a causal mask both sides: three at the ends, four beside them, five else.
    both = cost("flash_attn::_flash_attn_forward", q, q, q, 0.0, 0.125, False, 2, 2, 0.0)
    assert both.total_flops == 2 * 2 * (3 + 4 + 4 * 5 + 4 + 3) * D
