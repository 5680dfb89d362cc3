from boundby import ops as costs
from tests.ops.builders import cost, t


def test_nms_reads_all_boxes_and_writes_at_most_all() -> None:
    found = cost("torchvision::nms", t(1000, 4), t(1000), 0.5)
    assert (found.bytes_read, found.bytes_written) == (4 * 5000, 8 * 1000)
    assert found.upper_bound


def test_roi_align_interpolates_points_per_cell() -> None:
    found = cost("torchvision::roi_align", t(2, 256, 50, 50), t(100, 5), 0.25, 7, 7, 2, False)
    cells = 100 * 256 * 7 * 7
    assert found.bytes_written == 4 * cells
    assert found.flops == {"vector.float32": 8 * 4 * cells}
    args = (t(100, 256, 7, 7), t(100, 5), 0.25, 7, 7, 2, 256, 50, 50, 2, False)
    assert cost("torchvision::_roi_align_backward", *args).bytes_written == 4 * 2 * 256 * 50 * 50


def test_deformable_convolution_gathers_its_columns() -> None:
    # 3 x 3 taps of 64 channels for each of 2 x 50 x 50 places; two offsets and a factor a tap.
    x, weight, bias = t(2, 64, 50, 50), t(128, 64, 3, 3), t(128)
    offsets, mask = t(2, 18, 50, 50), t(2, 9, 50, 50)
    settings = (1, 1, 1, 1, 1, 1, 1, 1, True)
    found = cost("torchvision::deform_conv2d", x, weight, offsets, mask, bias, *settings)
    assert found.bytes_read == 4 * 2 * (64 + 18 + 9) * 2500
    assert found.bytes_written == 4 * (64 * 9) * (2 * 2500)
    assert costs.op_class("torchvision::deform_conv2d") == "movement"
