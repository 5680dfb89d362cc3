import pytest

from tests.ops.builders import cost, t, unknown


def test_convolution_matches_hand_arithmetic() -> None:
    # 8 pictures of 3x32x32, sixteen 3x3 filters, padding 1: the size stays.
    found = cost(
        "convolution",
        t(8, 3, 32, 32),
        t(16, 3, 3, 3),
        t(16),
        (1, 1),
        (1, 1),
        (1, 1),
        False,
        (0, 0),
        1,
    )
    assert found.flops == {"matmul.float32": 2 * 8 * 16 * 32 * 32 * 3 * 3 * 3}
    assert found.bytes_read == 4 * (8 * 3 * 32 * 32 + 16 * 3 * 3 * 3 + 16)
    assert found.bytes_written == 4 * 8 * 16 * 32 * 32


def test_stride_dilation_and_groups_are_counted() -> None:
    # (32 + 2*2 - (2*2+1)) // 2 + 1 = 16; each filter sees 8 of 16 channels.
    found = cost(
        "convolution",
        t(2, 16, 32, 32),
        t(24, 8, 3, 3),
        None,
        (2, 2),
        (2, 2),
        (2, 2),
        False,
        (0, 0),
        2,
    )
    assert found.total_flops == 2 * 2 * 24 * 16 * 16 * 8 * 9
    assert found.bytes_written == 4 * 2 * 24 * 16 * 16


def test_transposed_convolution_matches_hand_arithmetic() -> None:
    # (16 - 1) * 2 - 0 + 2 = 32; the weight is [in, out / groups, 2, 2].
    found = cost(
        "convolution", t(2, 8, 16, 16), t(8, 4, 2, 2), None, (2, 2), (0, 0), (1, 1), True, (0, 0), 2
    )
    assert found.total_flops == 2 * 2 * 8 * 16 * 16 * 4 * 4
    assert found.bytes_written == 4 * 2 * (4 * 2) * 32 * 32


def test_strided_pointwise_convolution_reads_a_quarter() -> None:
    found = cost("cudnn_convolution", t(2, 64, 56, 56), t(128, 64, 1, 1), (0, 0), (2, 2), (1, 1), 1)
    assert found.bytes_read == 4 * (2 * 64 * 28 * 28 + 128 * 64)


@pytest.mark.parametrize("name", ["mkldnn_convolution", "miopen_convolution"])
def test_argument_order_of_each_backend_is_known(name: str) -> None:
    found = cost(name, t(8, 3, 32, 32), t(16, 3, 3, 3), t(16), (1, 1), (1, 1), (1, 1), 1)
    assert found.total_flops == 2 * 8 * 16 * 32 * 32 * 27


def test_one_and_three_dimensional_convolutions_are_costed() -> None:
    one = cost("convolution", t(2, 4, 10), t(6, 4, 3), None, (1,), (0,), (1,), False, (0,), 1)
    assert one.total_flops == 2 * 2 * 6 * 8 * 4 * 3
    three = cost(
        "slow_conv3d_forward",
        t(1, 2, 4, 4, 4),
        t(3, 2, 2, 2, 2),
        (2, 2, 2),
        None,
        (1, 1, 1),
        (0, 0, 0),
    )
    assert three.total_flops == 2 * 3 * 27 * 2 * 8


@pytest.mark.parametrize(
    ("wanted", "products"),
    [((True, True, True), 2), ((False, True, True), 1), ((True, False, False), 1)],
)
def test_backward_has_one_convolution_per_gradient(wanted: tuple[bool, ...], products: int) -> None:
    found = cost(
        "convolution_backward",
        t(8, 16, 32, 32),
        t(8, 3, 32, 32),
        t(16, 3, 3, 3),
        (16,),
        (1, 1),
        (1, 1),
        (1, 1),
        False,
        (0, 0),
        1,
        wanted,
    )
    assert found.total_flops == products * 2 * 8 * 16 * 32 * 32 * 27


def test_without_a_recorded_stride_the_output_is_unknown() -> None:
    assert unknown("cudnn_convolution", t(2, 64, 56, 56), t(128, 64, 1, 1), None, None, None, None)
