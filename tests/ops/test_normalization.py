from tests.ops.builders import cost, t

BF = "bfloat16"
ROWS, WIDTH = 64, 512
N = ROWS * WIDTH


def test_layer_norm_writes_two_statistics_a_row() -> None:
    w = t(WIDTH, dtype=BF)
    found = cost("native_layer_norm", t(ROWS, WIDTH, dtype=BF), (WIDTH,), w, w, 1e-5)
    assert found.bytes_read == 2 * N + 2 * 2 * WIDTH
    assert found.bytes_written == 2 * N + 2 * 4 * ROWS


def test_layer_norm_backward_matches_hand_arithmetic() -> None:
    x, rows, w = t(ROWS, WIDTH), t(ROWS, 1), t(WIDTH)
    found = cost("native_layer_norm_backward", x, x, (WIDTH,), rows, rows, w, w, (True, True, True))
    assert found.bytes_read == 4 * (2 * N + 2 * ROWS + WIDTH)
    assert found.bytes_written == 4 * (N + 2 * WIDTH)
    only_input = cost(
        "native_layer_norm_backward", x, x, (WIDTH,), rows, rows, w, w, (True, False, False)
    )
    assert only_input.bytes_written == 4 * N


def test_batch_norm_updates_its_statistics_only_in_training() -> None:
    x, c = t(8, 16, 10, 10), t(16)
    training = cost("native_batch_norm", x, c, c, c, c, True, 0.1, 1e-5)
    assert training.bytes_read == 4 * (12800 + 4 * 16)
    assert training.bytes_written == 4 * (12800 + 4 * 16)  # saved and running statistics
    inference = cost("native_batch_norm", x, c, c, c, c, False, 0.1, 1e-5)
    assert inference.bytes_written == 4 * 12800


def test_batch_norm_backward_matches_hand_arithmetic() -> None:
    x, c = t(8, 16, 10, 10), t(16)
    found = cost("native_batch_norm_backward", x, x, c, c, c, c, c, True, 1e-5, (True, True, True))
    assert found.bytes_read == 4 * (2 * 12800 + 3 * 16)
    assert found.bytes_written == 4 * (12800 + 2 * 16)
    assert cost("cudnn_batch_norm_backward", x, x, c, c, c, c, c, 1e-5).bytes == found.bytes


def test_batch_norm_backward_writes_requested_gradients() -> None:
    x, c = t(8, 16, 10, 10), t(16)
    frozen_below = (c, c, c, c, c, True, 1e-5, (False, True, True))
    for name in ("native_batch_norm_backward", "batch_norm_backward"):
        assert cost(name, x, x, *frozen_below, t(1, dtype="uint8")).bytes_written == 4 * 2 * 16


def test_group_norm_keeps_statistics_of_each_group() -> None:
    x, c = t(8, 16, 10, 10), t(16)
    found = cost("native_group_norm", x, c, c, 8, 16, 100, 4, 1e-5)
    assert found.bytes_written == 4 * (12800 + 2 * 8 * 4)


def test_softmax_may_write_a_wider_dtype() -> None:
    x = t(ROWS, WIDTH, dtype=BF)
    assert cost("_softmax", x, -1, False).bytes == 2 * N + 2 * N
    assert cost("_softmax", x, -1, True).bytes == 2 * N + 4 * N
    assert cost("_softmax", x, -1, False).flops == {"vector.float32": 5 * N}


def test_softmax_backward_writes_the_inputs_dtype() -> None:
    x = t(ROWS, WIDTH)
    bfloat16 = 15
    found = cost("_softmax_backward_data", x, x, -1, bfloat16)
    assert (found.bytes_read, found.bytes_written) == (8 * N, 2 * N)
    assert found.upper_bound  # both inputs could be one tensor


def test_nll_loss_reads_one_entry_a_target() -> None:
    target = t(ROWS, dtype="int64")
    found = cost("nll_loss_forward", t(ROWS, WIDTH), target, None, 1, -100)
    assert found.bytes_read == ROWS * (4 + 8)
    backward = cost("nll_loss_backward", t(), t(ROWS, WIDTH), target, None, 1, -100, t())
    assert backward.bytes_written == 4 * ROWS  # zeros are an operator of their own


def test_pointwise_losses_are_costed() -> None:
    x = t(ROWS, WIDTH)
    assert cost("mse_loss", x, x, 1).bytes == 8 * N + 4
    assert cost("mse_loss", x, x, 0).bytes == 8 * N + 4 * N
    assert cost("mse_loss_backward", t(), x, x, 1).bytes == 4 + 8 * N + 4 * N
