from boundby.model import OpCall, Tensor


def test_repeated_axis_counts_once() -> None:
    # A bias of 10 expanded to 4 x 10: 10 floats of memory.
    bias = Tensor(shape=(4, 10), strides=(0, 1), dtype="float32")
    assert bias.elements == 40
    assert bias.bytes == 40
    assert Tensor(shape=(4, 10), dtype="bfloat16").bytes == 80


def test_overlapping_windows_count_their_span() -> None:
    # Frames of 400 samples every 160: the last of a thousand ends at 999 * 160 + 400 = 160,240.
    frames = Tensor(shape=(1000, 400), strides=(160, 1), dtype="float32")
    assert frames.bytes == 4 * 160_240
    # Every second column of a matrix: gaps are not shown.
    assert Tensor(shape=(100, 50), strides=(100, 2), dtype="float32").bytes == 4 * 5000


def test_empty_tensor_has_zero_bytes() -> None:
    assert Tensor(shape=(0, 10), strides=(0, 1), dtype="float32").bytes == 0


def test_tensors_of_a_call_include_those_in_lists() -> None:
    a, b = Tensor(shape=(2,), dtype="float32"), Tensor(shape=(3,), dtype="float32")
    assert OpCall(name="aten::cat", args=((a, b), 0)).tensors == (a, b)
    assert OpCall(name="aten::add", args=(a, 1.0, None)).tensors == (a,)
