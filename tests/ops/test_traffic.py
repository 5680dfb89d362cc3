import functools

import pytest

from boundby.ops.registry import NotRecordedError
from boundby.ops.traffic import broadcast, moved, partial, promote, read
from tests.ops.builders import t


def test_shapes_broadcast_as_torch_does() -> None:
    assert broadcast((3, 1), (4,)) == (3, 4)
    assert broadcast((), (2, 2)) == (2, 2)
    with pytest.raises(ValueError):
        broadcast((3,), (4,))


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((t(4, dtype="int64"), t(4, dtype="float32")), "float32"),
        ((t(4, dtype="bfloat16"), t(dtype="float64")), "bfloat16"),  # zero-dimensional: no say
        ((t(4, dtype="int32"), t(dtype="float32")), "float32"),  # but its category counts
        ((t(4, dtype="float16"), t(4, dtype="bfloat16")), "float32"),
        ((t(4, dtype="bool"), 1), "int64"),
        ((t(4, dtype="int64"), 1.5), "float32"),
        ((t(4, dtype="float16"), 1.5), "float16"),
        ((t(4, dtype="uint8"), t(4, dtype="int8")), "int16"),
    ],
)
def test_dtypes_promote_as_torch_does(operands: tuple[object, ...], expected: str) -> None:
    assert promote(*operands) == expected


def test_one_tensor_given_twice_counts_once() -> None:
    x = t(1000, 100, strides=(100, 1), storage=7, identity=0)
    assert read(x, x) == (400_000, False)
    third = t(8, 64, strides=(192, 1), storage=7, identity=0)  # of a packed tensor: with gaps
    assert read(third, third) == (8 * 64 * 4, False)


def test_a_transposed_view_of_a_whole_storage_is_the_same_memory() -> None:
    view = functools.partial(t, storage=7, storage_bytes=400_000)
    x = view(1000, 100, strides=(100, 1), identity=0)
    transposed = view(100, 1000, strides=(1, 100), identity=1)
    assert read(x, transposed) == (400_000, False)


def test_two_halves_of_a_tensor_count_separately() -> None:
    # a, b = x.chunk(2): one storage, one layout, another offset, which is not recorded.
    half = functools.partial(t, 500, 100, strides=(100, 1), storage=7, storage_bytes=400_000)
    a, b = half(identity=0), half(identity=1)
    assert read(a, b) == (2 * 200_000, True)


def test_views_of_a_storage_of_unknown_size_count_separately() -> None:
    a = t(1000, 100, strides=(100, 1), storage=7, identity=0)
    b = t(1000, 100, strides=(100, 1), storage=7, identity=1)
    assert read(a, b) == (2 * 400_000, True)
    # Query and key cut out of one packed tensor.
    query = t(8, 64, strides=(192, 1), storage=7, identity=0)
    key = t(8, 64, strides=(192, 1), storage=7, identity=1)
    assert read(query, key) == (2 * 8 * 64 * 4, True)


def test_equal_inputs_without_storage_ids_give_an_upper_bound() -> None:
    assert read(t(10), t(10)) == (80, True)
    assert read(t(10), t(20)) == (120, False)
    assert read(t(10), t(10, dtype="float16")) == (60, False)


def test_a_repeated_axis_is_read_once() -> None:
    assert read(t(1000, 100, strides=(0, 1))) == (400, False)


def test_a_tensor_without_dtype_is_never_zero_bytes() -> None:
    with pytest.raises(NotRecordedError):
        moved(reads=(t(10, dtype=""),))


def test_accessed_bytes_do_not_exceed_the_tensor() -> None:
    assert partial(t(10), 1_000).bytes == 40
    assert partial(t(10), 3).bytes == 12
