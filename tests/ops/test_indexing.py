from tests.ops.builders import cost, t, unknown

I64 = "int64"


def test_embedding_reads_indexed_rows() -> None:
    found = cost("embedding", t(30522, 1024), t(8, 512, dtype=I64))
    assert found.bytes_read == 4096 * (4 * 1024 + 8)
    assert found.bytes_written == 4096 * 4 * 1024
    assert found.upper_bound  # two tokens may be the same word


def test_embedding_reads_at_most_its_table() -> None:
    assert cost("embedding", t(2, 1024), t(8, 512, dtype=I64)).bytes_read == 4 * 2048 + 8 * 4096


def test_embedding_backward_writes_summed_rows() -> None:
    found = cost("embedding_dense_backward", t(8, 512, 64), t(8, 512, dtype=I64), 30522, -1, False)
    assert found.bytes_read == 4096 * (4 * 64 + 8)
    assert found.bytes_written == 4096 * 4 * 64


def test_embedding_bag_sums_its_rows() -> None:
    found = cost(
        "_embedding_bag",
        t(1000, 16),
        t(50, dtype=I64),
        t(10, dtype=I64),
        False,
        0,
        False,
        None,
        False,
    )
    assert found.bytes_read == 4 * 50 * 16 + 8 * 50 + 8 * 10
    assert found.bytes_written == 4 * 10 * 16 + 8 * 50


def test_index_gather_and_select_read_selected_elements() -> None:
    x, rows = t(100, 64), t(10, dtype=I64)
    assert cost("index", x, (rows,)).bytes == 4 * 640 + 80 + 4 * 640
    assert cost("index_select", x, 0, rows).bytes == 4 * 640 + 80 + 4 * 640
    assert cost("gather", x, 1, t(100, 3, dtype=I64)).bytes == 300 * (4 + 8 + 4)
    assert cost("index", x, (rows, rows)).bytes_written == 4 * 10
    assert unknown("index", x, None)


def test_scatter_writes_indexed_elements_and_scatter_add_reads_them() -> None:
    x, places, source = t(100, 64), t(10, 64, dtype=I64), t(10, 64)
    assert cost("scatter_", x, 0, places, source).bytes_read == 640 * (8 + 4)
    assert cost("scatter_add_", x, 0, places, source).bytes_read == 640 * (8 + 4 + 4)
    assert cost("scatter_add_", x, 0, places, source).bytes_written == 640 * 4


def test_index_put_without_recorded_indices_counts_its_values() -> None:
    x, values = t(100, 64), t(10, 64)
    assert cost("index_put_", x, None, values, False).bytes == 4 * 640 * 2
    assert cost("index_put_", x, None, values, True).bytes == 4 * 640 * 3
    assert unknown("index_put_", x, None, t(), False)  # one value, unknown places


def test_sort_and_topk_are_costed() -> None:
    x = t(10, 100)
    assert cost("sort", x, -1, False).bytes == 4000 + 4000 + 8000
    assert cost("topk", x, 5, -1, True, True).bytes == 4000 + 50 * (4 + 8)
    assert cost("nonzero", x).bytes == 4000
