import pytest

from boundby.costs.registry import NotRecordedError
from boundby.costs.traffic import broadcast, moved, partial, promote, read
from tests.costs.builders import t


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


def test_one_storage_counts_once() -> None:
    x = t(1000, 100, strides=(100, 1), storage=7)
    assert read(x, x) == (400_000, False)


def test_a_transposed_view_of_a_dense_storage_is_the_same_memory() -> None:
    x = t(1000, 100, strides=(100, 1), storage=7)
    transposed = t(100, 1000, strides=(1, 100), storage=7)
    assert read(x, transposed) == (400_000, False)


def test_views_with_gaps_may_lie_elsewhere_in_their_storage() -> None:
    # Query and key cut out of one packed tensor: same storage, same strides, other offset.
    query = t(8, 64, strides=(192, 1), storage=7)
    assert read(query, query) == (2 * 8 * 64 * 4, True)


def test_without_storage_alike_inputs_are_an_upper_bound() -> None:
    assert read(t(10), t(10)) == (80, True)
    assert read(t(10), t(20)) == (120, False)
    assert read(t(10), t(10, dtype="float16")) == (60, False)


def test_a_repeated_axis_is_read_once() -> None:
    assert read(t(1000, 100, strides=(0, 1))) == (400, False)


def test_a_tensor_without_dtype_is_never_zero_bytes() -> None:
    with pytest.raises(NotRecordedError):
        moved(reads=(t(10, dtype=""),))


def test_no_more_of_a_tensor_is_touched_than_there_is() -> None:
    assert partial(t(10), 1_000).bytes == 40
    assert partial(t(10), 3).bytes == 12
