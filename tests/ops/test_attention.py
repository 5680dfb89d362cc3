import itertools
from typing import Literal

import pytest

from boundby.ops.attention import CAUSAL, CAUSAL_FROM_END, FULL, Mask, pairs
from tests.ops.builders import cost, t

BF = "bfloat16"
B, H, S, D = 2, 8, 128, 64


def heads_first(heads: int = H, length: int = S):  # type: ignore[no-untyped-def]
    return t(B, heads, length, D, dtype=BF)


def test_causal_pairs_are_the_lower_triangle() -> None:
    assert pairs(4, 4, FULL) == 16
    assert pairs(4, 4, CAUSAL) == 1 + 2 + 3 + 4
    assert pairs(2, 4, CAUSAL) == 1 + 2
    assert pairs(4, 2, CAUSAL) == 1 + 2 + 2 + 2


def test_bottom_right_causal_mask_ends_with_the_last_key() -> None:
    assert pairs(4, 4, CAUSAL_FROM_END) == 1 + 2 + 3 + 4
    assert pairs(2, 4, CAUSAL_FROM_END) == 3 + 4
    assert pairs(4, 2, CAUSAL_FROM_END) == 0 + 0 + 1 + 2
    assert pairs(512, 4096, CAUSAL_FROM_END) == 512 * 513 // 2 + 512 * (4096 - 512)


@pytest.mark.parametrize("corner", ["top left", "bottom right"])
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (3, 7), (7, 3)])
def test_a_window_is_a_band_around_the_diagonal(
    corner: Literal["top left", "bottom right"], queries: int, keys: int
) -> None:
    first = keys - queries if corner == "bottom right" else 0
    for left, right in itertools.product((None, 0, 2), (None, 0, 1)):
        seen = sum(
            (left is None or key >= first + query - left)
            and (right is None or key <= first + query + right)
            for query in range(queries)
            for key in range(keys)
        )
        assert pairs(queries, keys, Mask(corner=corner, left=left, right=right)) == seen


@pytest.mark.parametrize(
    ("name", "args", "scored"),
    [
        # torch.nn.attention.bias: only here does is_causal mean the lower right.
        ("_scaled_dot_product_flash_attention", (0.0, True), 7),
        ("_scaled_dot_product_flash_attention_for_cpu", (0.0, True), 3),
        ("_scaled_dot_product_efficient_attention", (None, False, 0.0, True), 3),
        ("_scaled_dot_product_cudnn_attention", (None, False, 0.0, True), 3),
    ],
)
def test_causal_corner_depends_on_the_backend(
    name: str, args: tuple[object, ...], scored: int
) -> None:
    q, kv = t(1, 1, 2, D, dtype=BF), t(1, 1, 4, D, dtype=BF)
    assert cost(name, q, kv, kv, *args).total_flops == 2 * 2 * scored * D


def test_forward_is_two_matmuls_without_writing_scores() -> None:
    q = heads_first()
    found = cost("_scaled_dot_product_flash_attention", q, q, q, 0.0, False)
    assert found.flops == {"matmul.bfloat16": 2 * 2 * B * H * S * S * D}
    assert found.bytes_read == 3 * 2 * B * H * S * D
    assert found.bytes_written == 2 * B * H * S * D + 4 * B * H * S


def test_causal_counts_the_triangle() -> None:
    q = heads_first()
    found = cost("_scaled_dot_product_flash_attention_for_cpu", q, q, q, 0.0, True)
    assert found.total_flops == 2 * 2 * B * H * (S * (S + 1) // 2) * D


def test_grouped_queries_read_fewer_keys_with_equal_flops() -> None:
    q, kv = heads_first(), heads_first(heads=2)
    found = cost("_scaled_dot_product_cudnn_attention", q, kv, kv, None, False, 0.0, False)
    assert found.total_flops == 4 * B * H * S * S * D
    assert found.bytes_read == 2 * B * S * D * (H + 2 + 2)
    assert found.bytes_written == 2 * B * H * S * D  # without row sums


def test_backward_is_five_matmuls() -> None:
    q, rows = heads_first(), t(B, H, S)
    found = cost(
        "_scaled_dot_product_flash_attention_backward",
        q,
        q,
        q,
        q,
        q,
        rows,
        None,
        None,
        S,
        S,
        0.0,
        False,
    )
    assert found.total_flops == 5 * 2 * B * H * S * S * D
    assert found.bytes_read == 5 * 2 * B * H * S * D + 4 * B * H * S
    assert found.bytes_written == 3 * 2 * B * H * S * D


def test_encoder_fast_path_splits_query_key_and_value() -> None:
    packed = t(B, S, 3 * H * D)
    found = cost("_transform_bias_rescale_qkv", packed, t(3 * H * D), H)
    assert found.bytes_read == 4 * (B * S * 3 * H * D + 3 * H * D)
    assert found.bytes_written == 4 * B * S * 3 * H * D
    assert found.flops == {"vector.float32": B * S * 4 * H * D}
