"""Sizes that old profilers left out of convolutions follow from the forward and its gradients."""

import numpy as np

from boundby import ops as costs
from boundby.capture.kineto.old_convolutions import complete
from boundby.model import Argument, OpCall
from tests.timelines import tensor

NAME = "aten::cudnn_convolution"
REST: tuple[Argument, ...] = (None, None, None, tensor())


def rows(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


def test_gradients_and_forward_complete_each_other() -> None:
    """3x3 with stride 2 and padding 1: 8 images of 16 x 32 x 32 become 24 x 16 x 16."""
    x, weight, out = tensor(8, 16, 32, 32), tensor(24, 16, 3, 3), tensor(8, 24, 16, 16)
    calls = [
        OpCall(name=NAME, args=(x, weight, *REST)),
        OpCall(name=f"{NAME}_backward_input", args=(None, out, weight, *REST)),
        OpCall(name=f"{NAME}_backward_weight", args=(None, out, x, *REST)),
    ]
    found = complete(rows(0, -1, 1, 2), calls, rows(-1, -1, 0, 0))
    flops = 2 * 8 * 16 * 16 * 24 * 16 * 3 * 3
    for row in (0, 2, 3):
        cost = costs.cost(calls[found[row]])
        assert cost is not None and cost.flops == {"matmul.float32": flops}
    assert found[1] == -1
    forward = calls[found[0]]
    assert forward.args[2:5] == ((1, 1), (2, 2), (1, 1))


def test_gradients_of_equal_sizes_may_have_different_weights() -> None:
    x = out = tensor(8, 16, 32, 32)
    calls = [
        OpCall(name=NAME, args=(x, tensor(16, 16, 3, 3), *REST)),
        OpCall(name=NAME, args=(x, tensor(16, 16, 1, 1), *REST)),
        OpCall(name=f"{NAME}_backward_weight", args=(None, out, x, *REST)),
    ]
    found = complete(rows(0, 1, 2, 2), calls, rows(-1, -1, 0, 1))
    wide, narrow = (costs.cost(calls[found[row]]) for row in (2, 3))
    assert wide is not None and narrow is not None
    assert wide.total_flops == 9 * narrow.total_flops


def test_recorded_sizes_and_gradients_without_a_forward_stay() -> None:
    x = out = tensor(8, 16, 32, 32)
    alone = OpCall(name=f"{NAME}_backward_weight", args=(None, out, x, *REST))
    known = OpCall(name=f"{NAME}_backward_weight", args=((16, 16, 3, 3), out, x, *REST))
    for one in (alone, known):
        calls = [one]
        assert complete(rows(0), calls, rows(-1)).tolist() == [0] and calls == [one]
