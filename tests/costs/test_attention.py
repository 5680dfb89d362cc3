import pytest

from boundby.costs.attention import pairs
from tests.costs.builders import cost, t

BF = "bfloat16"
B, H, S, D = 2, 8, 128, 64


def heads_first(heads: int = H, length: int = S):  # type: ignore[no-untyped-def]
    return t(B, heads, length, D, dtype=BF)


def test_causal_pairs_are_the_lower_triangle() -> None:
    assert pairs(4, 4, causal=False) == 16
    assert pairs(4, 4, causal=True) == 1 + 2 + 3 + 4
    assert pairs(2, 4, causal=True) == 1 + 2
    assert pairs(4, 2, causal=True) == 1 + 2 + 2 + 2


def test_forward_is_two_products_and_never_writes_scores() -> None:
    q = heads_first()
    found = cost("_scaled_dot_product_flash_attention", q, q, q, 0.0, False)
    assert found.flops == {"matmul.bfloat16": 2 * 2 * B * H * S * S * D}
    assert found.bytes_read == 3 * 2 * B * H * S * D
    assert found.bytes_written == 2 * B * H * S * D + 4 * B * H * S


def test_causal_counts_the_triangle() -> None:
    q = heads_first()
    found = cost("_scaled_dot_product_flash_attention_for_cpu", q, q, q, 0.0, True)
    assert found.total_flops == 2 * 2 * B * H * (S * (S + 1) // 2) * D


def test_grouped_queries_read_fewer_keys_and_compute_as_much() -> None:
    q, kv = heads_first(), heads_first(heads=2)
    found = cost("_scaled_dot_product_cudnn_attention", q, kv, kv, None, False, 0.0, False)
    assert found.total_flops == 4 * B * H * S * S * D
    assert found.bytes_read == 2 * B * S * D * (H + 2 + 2)
    assert found.bytes_written == 2 * B * H * S * D  # no row sums asked for


def test_backward_is_five_products() -> None:
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
    reference = heads_first()
    expected = cost(
        "_scaled_dot_product_flash_attention", reference, reference, reference, 0.0, False
    )
    found = cost(name, q, q, q, *args)
    assert (found.flops, found.bytes) == (expected.flops, expected.bytes)


def test_packed_sequences_are_an_upper_bound() -> None:
    # Three sequences, 100 tokens in all, the longest 50: each counted as 50 long.
    q, offsets = t(100, H, D, dtype=BF), t(4, dtype="int32")
    found = cost("_flash_attention_forward", q, q, q, offsets, offsets, 50, 50, 0.0, False)
    assert found.total_flops == 4 * 3 * H * 50 * 50 * D
    assert found.bytes_written == 2 * 100 * H * D
    assert found.upper_bound
