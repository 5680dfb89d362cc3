from tests.ops.builders import cost, t, unknown

N = 1000


def test_a_copy_overwrites_its_destination() -> None:
    found = cost("copy_", t(N, dtype="bfloat16"), t(N), False)
    assert (found.bytes_read, found.bytes_written) == (4 * N, 2 * N)


def test_copying_a_repeated_source_reads_it_once() -> None:
    assert cost("copy_", t(8, N), t(8, N, strides=(0, 1)), False).bytes_read == 4 * N


def test_filling_only_writes() -> None:
    for name in ("fill_", "zero_"):
        assert cost(name, t(N)).bytes_read == 0
        assert cost(name, t(N)).bytes_written == 4 * N


def test_cat_moves_all_its_pieces() -> None:
    assert cost("cat", (t(10), t(20)), 0).bytes == 2 * 4 * 30
    assert unknown("cat", None, 0)
    assert unknown("cat", (t(10, dtype=""), t(20, dtype="")), 0)  # a list without dtypes


def test_padding_writes_the_border() -> None:
    assert cost("constant_pad_nd", t(3, 4, 4), (1, 1, 2, 0), 0).bytes_written == 4 * 3 * 6 * 6


def test_views_have_zero_cost_not_unknown() -> None:
    for name in ("view", "transpose", "expand", "as_strided", "slice", "empty", "detach"):
        assert cost(name).bytes == 0


def test_reductions_read_inputs_and_write_results() -> None:
    x = t(64, 100)
    assert cost("sum", x, (0,), False, None).bytes_written == 4 * 100
    assert cost("sum", x, None).bytes_written == 4
    assert cost("mean", x, (1,), True, None).bytes_written == 4 * 64
    assert cost("max", x, 1, False).bytes_written == 64 * (4 + 8)
    assert cost("max", x, t(64, 100)).bytes_written == 4 * 6400
    assert cost("argmax", x, -1, False).bytes_written == 64 * 8
    assert cost("median", t(4096, 16), 0, False).bytes_written == 16 * (4 + 8)
    assert cost("mode", x, None, False).bytes_written == 64 * (4 + 8)
    assert cost("any", x).bytes_written == 1
    assert cost("cumsum", t(10, dtype="bool"), 0, None).bytes_written == 80
    assert cost("linalg_vector_norm", x, 2, None, False, None).bytes == 4 * 6400 + 4
    assert cost("sum", x, (0,), False, None).flops == {"vector.float32": 6400}


def test_distances_and_their_backward_are_costed() -> None:
    a, b, distances = t(10, 8), t(20, 8), t(10, 20)
    assert cost("_cdist_forward", a, b, 2.0, None).bytes == 4 * (80 + 160 + 200)
    found = cost("_cdist_backward", distances, a, b, 2.0, distances)
    assert (found.bytes_read, found.bytes_written) == (4 * (200 + 80 + 160 + 200), 4 * 80)
    assert found.flops == {"vector.float32": 4 * 200 * 8}


def test_dropout_writes_a_byte_mask() -> None:
    found = cost("native_dropout", t(N, dtype="bfloat16"), 0.1, True)
    assert found.bytes == N * (2 + 2 + 1)


def test_random_numbers_are_written_only() -> None:
    assert cost("normal_", t(N), 0.0, 1.0, None).bytes == 4 * N


def test_pooling_reads_inputs_and_writes_outputs() -> None:
    x = t(8, 64, 112, 112)
    out = 8 * 64 * 56 * 56
    found = cost("max_pool2d_with_indices", x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    assert found.bytes == 4 * x.elements + out * (4 + 8)
    grad, places = t(8, 64, 56, 56), t(8, 64, 56, 56, dtype="int64")
    back = cost(
        "max_pool2d_with_indices_backward", grad, x, (3, 3), (2, 2), (1, 1), (1, 1), False, places
    )
    assert back.bytes == out * (4 + 8) + 4 * x.elements
    assert cost("avg_pool2d", x, (2, 2), (), (0, 0), False).bytes_written == 4 * out
    assert cost("_adaptive_avg_pool2d", x, (1, 1)).bytes_written == 4 * 8 * 64


def test_interpolation_uses_size_or_scale() -> None:
    x = t(1, 3, 8, 8)
    assert cost("upsample_bilinear2d", x, (16, 16), False, None, None).bytes_written == 4 * 3 * 256
    assert cost("upsample_nearest2d", x, None, (2.0, 2.0)).bytes_written == 4 * 3 * 256
    back = cost("upsample_nearest2d_backward", t(1, 3, 16, 16), (16, 16), (1, 3, 8, 8), None, None)
    assert back.bytes == 4 * 3 * (256 + 64)
