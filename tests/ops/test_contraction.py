import pytest

from tests.ops.builders import cost, t, unknown

BF = "bfloat16"


def test_mm_has_2mnk_flops() -> None:
    found = cost("mm", t(32, 64, dtype=BF), t(64, 128, dtype=BF))
    assert found.flops == {"matmul.bfloat16": 2 * 32 * 64 * 128}
    assert found.bytes_read == 2 * (32 * 64 + 64 * 128)
    assert found.bytes_written == 2 * 32 * 128


def test_mm_into_a_given_output_costs_the_same() -> None:
    a, b = t(32, 64), t(64, 128)
    assert cost("mm", a, b, t(32, 128)) == cost("mm", a, b)


def test_addmm_reads_its_bias_unless_beta_is_zero() -> None:
    bias, a, b = t(128), t(32, 64), t(64, 128)
    plain = cost("mm", a, b)
    assert cost("addmm", bias, a, b, 1, 1).bytes_read == plain.bytes_read + 128 * 4
    assert cost("addmm", bias, a, b, 0, 1).bytes_read == plain.bytes_read
    assert cost("addmm", bias, a, b, 1, 1).flops == plain.flops


def test_bmm_and_baddbmm_multiply_each_matrix() -> None:
    a, b = t(8, 16, 32), t(8, 32, 64)
    assert cost("bmm", a, b).flops == {"matmul.float32": 2 * 8 * 16 * 32 * 64}
    assert cost("bmm", a, b).bytes == 4 * 8 * (16 * 32 + 32 * 64 + 16 * 64)
    assert cost("baddbmm", t(8, 16, 64), a, b, 1, 1).bytes_read == 4 * 8 * (
        16 * 32 + 32 * 64 + 16 * 64
    )


def test_linear_applies_a_transposed_weight_to_all_rows() -> None:
    found = cost("linear", t(4, 8, 64), t(128, 64), t(128))
    assert found.total_flops == 2 * 4 * 8 * 64 * 128
    assert found.bytes == 4 * (4 * 8 * 64 + 128 * 64 + 128 + 4 * 8 * 128)


@pytest.mark.parametrize(
    ("a", "b", "multiply_adds", "out"),
    [
        ((5,), (5,), 5, 1),
        ((3, 5), (5,), 15, 3),
        ((5,), (5, 7), 35, 7),
        ((2, 3, 5), (5, 7), 2 * 3 * 5 * 7, 2 * 3 * 7),
        ((2, 3, 5), (2, 5, 7), 2 * 3 * 5 * 7, 2 * 3 * 7),
    ],
)
def test_matmul_of_any_ranks(
    a: tuple[int, ...], b: tuple[int, ...], multiply_adds: int, out: int
) -> None:
    found = cost("matmul", t(*a), t(*b))
    assert found.total_flops == 2 * multiply_adds
    assert found.bytes_written == 4 * out


def test_matrix_vector_products_are_costed() -> None:
    assert cost("mv", t(10, 20), t(20)).total_flops == 400
    assert cost("addmv_", t(10), t(10, 20), t(20), 0, 1).bytes_read == 4 * (200 + 20)
    assert cost("dot", t(20), t(20)).total_flops == 40
    assert cost("addr", t(3, 4), t(3), t(4)).total_flops == 24


def test_float8_matmuls_use_their_own_unit_and_output_dtype() -> None:
    a, b, scale = t(32, 64, dtype="float8"), t(64, 128, dtype="float8"), t()
    found = cost("_scaled_mm", a, b, scale, scale, None, None, 15, True)
    assert found.flops == {"matmul.float8": 2 * 32 * 64 * 128}
    assert found.bytes_written == 2 * 32 * 128


def test_int8_matmuls_write_int32() -> None:
    found = cost("_int_mm", t(32, 64, dtype="int8"), t(64, 128, dtype="int8"))
    assert found.flops == {"matmul.int8": 2 * 32 * 64 * 128}
    assert found.bytes_written == 4 * 32 * 128


def test_grouped_matmuls_multiply_every_row_once() -> None:
    rows, experts = t(100, 64, dtype=BF), t(8, 64, 32, dtype=BF)
    found = cost("_grouped_mm", rows, experts, t(8, dtype="int32"))
    assert found.flops == {"matmul.bfloat16": 2 * 100 * 64 * 32}
    assert found.bytes == 2 * (100 * 64 + 8 * 64 * 32 + 100 * 32) + 8 * 4


def test_complex_matmul_is_four_real_ones() -> None:
    a = t(4, 4, dtype="complex64")
    assert cost("mm", a, a).flops == {"matmul.float32": 8 * 64}


def test_mismatched_shapes_are_unknown() -> None:
    assert unknown("mm", t(2, 3), t(4, 5))
    assert unknown("mm", None, None)
    assert unknown("mm")
