import pytest

from tests.ops.builders import cost, t, unknown

N = 1000


@pytest.mark.parametrize(
    ("name", "args", "bytes_read", "bytes_written"),
    [
        ("gelu", (t(N),), 4 * N, 4 * N),
        ("add", (t(N), t(N), 1), 8 * N, 4 * N),
        ("add", (t(N), 2.0, 1), 4 * N, 4 * N),
        ("add_", (t(N), t(N), 1), 8 * N, 4 * N),  # reads and writes its destination
        ("mul", (t(N, dtype="bfloat16"), t(dtype="float64")), 2 * N + 8, 2 * N),
        ("add", (t(10, 1), t(1, 100), 1), 4 * 110, 4 * 1000),  # broadcast
        ("gt", (t(N), 0), 4 * N, N),  # a bool a comparison
        ("div", (t(N, dtype="int64"), 3), 8 * N, 4 * N),  # integers divide to floats
        ("where", (t(N, dtype="bool"), t(N), t()), N + 4 * N + 4, 4 * N),
        ("masked_fill_", (t(N), t(N, dtype="bool"), 0.0), 5 * N, 4 * N),
        ("clamp", (t(N), 0, 1), 4 * N, 4 * N),
        ("addcmul_", (t(N), t(N), t(N), 0.1), 12 * N, 4 * N),
        ("threshold_backward", (t(N), t(N), 0), 8 * N, 4 * N),
        ("native_dropout_backward", (t(N), t(N, dtype="bool"), 1.1), 5 * N, 4 * N),
        ("elu_backward", (t(N), 1.0, 1.0, 1.0, False, t(N)), 8 * N, 4 * N),
        ("exp", (t(N), t(N)), 4 * N, 4 * N),  # the second is where it goes
        ("glu", (t(4, N),), 16 * N, 8 * N),
        ("pow", (2.0, t(N)), 4 * N, 4 * N),
    ],
)
def test_pointwise_traffic_matches_hand_arithmetic(
    name: str, args: tuple[object, ...], bytes_read: int, bytes_written: int
) -> None:
    found = cost(name, *args)
    assert (found.bytes_read, found.bytes_written) == (bytes_read, bytes_written)
    assert found.in_place is name.endswith("_")


def test_half_types_use_float32_units_and_integers_have_no_flops() -> None:
    assert cost("mul", t(N, dtype="float16"), 2.0).flops == {"vector.float32": N}
    assert cost("mul", t(N, dtype="float64"), 2.0).flops == {"vector.float64": N}
    assert cost("mul", t(N, dtype="int64"), 2).flops == {}


def test_an_expanded_operand_is_read_once() -> None:
    assert cost("mul", t(10, N), t(10, N, strides=(0, 1))).bytes_read == 4 * (10 * N + N)


def test_call_without_arguments_is_unknown() -> None:
    assert unknown("add", None, None, None)
