"""FLOPs against torch's own counter, on operators it counts right, run for real on the CPU.

Where that counter is known to be wrong the expectation is written out by hand: it ignores causal
masks and every SDPA on a CPU, and forgets the groups in a convolution's weight gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boundby import ops as costs
from boundby.model import Cost
from tests.ops.recording import Op, record

torch = pytest.importorskip("torch")
F = torch.nn.functional


def inclusive(op: Op) -> Cost:
    """What an operator and everything inside it do, each piece of work once."""
    inside = sum((inclusive(child) for child in op.children), Cost())
    found = costs.cost(op.call)
    return inside if found is None else costs.own_cost(found, inside) + inside


def matrix_flops(ops: list[Op]) -> float:
    total = sum((inclusive(op) for op in ops), Cost())
    return sum(amount for unit, amount in total.flops.items() if unit.startswith("matmul."))


def counted(function: Callable[[], object]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function()
    return float(counter.get_total_flops())


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


PRODUCTS: dict[str, Callable[[], object]] = {
    "mm": lambda: torch.mm(leaf(8, 16), leaf(16, 32)),
    "addmm": lambda: torch.addmm(leaf(32), leaf(8, 16), leaf(16, 32)),
    "bmm": lambda: torch.bmm(leaf(3, 8, 16), leaf(3, 16, 32)),
    "baddbmm": lambda: torch.baddbmm(leaf(3, 8, 32), leaf(3, 8, 16), leaf(3, 16, 32)),
    "einsum": lambda: torch.einsum("bik,bkj->bij", leaf(3, 8, 16), leaf(3, 16, 32)),
    "linear": lambda: F.linear(leaf(4, 8, 16), leaf(32, 16), leaf(32)),
    "linear backward": lambda: F.linear(leaf(4, 8, 16), leaf(32, 16), leaf(32)).sum().backward(),
    "matmul broadcast": lambda: torch.matmul(leaf(4, 8, 16), leaf(16, 32)),
    "bfloat16": lambda: torch.mm(leaf(8, 16).bfloat16(), leaf(16, 32).bfloat16()),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul_flops_equal_those_of_torch(name: str, tmp_path: Path) -> None:
    assert matrix_flops(record(PRODUCTS[name], tmp_path)) == counted(PRODUCTS[name])


def backward(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], object]:
    return lambda: function(*args, **options).sum().backward()


CONVOLUTIONS: dict[str, Callable[[], object]] = {
    "plain": backward(F.conv2d, leaf(2, 4, 16, 16), leaf(8, 4, 3, 3), leaf(8), padding=1),
    "strided": backward(F.conv2d, leaf(2, 4, 16, 16), leaf(8, 4, 3, 3), stride=2),
    "dilated": backward(F.conv2d, leaf(2, 4, 16, 16), leaf(8, 4, 3, 3), dilation=2),
    "grouped forward": lambda: F.conv2d(leaf(2, 4, 16, 16), leaf(8, 2, 3, 3), groups=2),
    "depthwise forward": lambda: F.conv2d(leaf(2, 4, 16, 16), leaf(4, 1, 3, 3), groups=4),
    "transposed": backward(F.conv_transpose2d, leaf(2, 4, 8, 8), leaf(4, 6, 2, 2), stride=2),
    "transposed and padded": backward(
        F.conv_transpose2d,
        leaf(2, 4, 8, 8),
        leaf(4, 6, 3, 3),
        stride=2,
        padding=1,
        output_padding=1,
    ),
    "transposed and grouped forward": lambda: F.conv_transpose2d(
        leaf(2, 4, 8, 8), leaf(4, 3, 2, 2), stride=2, groups=2
    ),
    "one dimension": backward(F.conv1d, leaf(2, 4, 16), leaf(8, 4, 3)),
    "three dimensions": backward(F.conv3d, leaf(1, 2, 6, 6, 6), leaf(3, 2, 2, 2, 2)),
    "only the weight": backward(F.conv2d, torch.randn(2, 4, 16, 16), leaf(8, 4, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_flops_equal_those_of_torch(name: str, tmp_path: Path) -> None:
    assert matrix_flops(record(CONVOLUTIONS[name], tmp_path)) == counted(CONVOLUTIONS[name])


def test_grouped_convolution_training_costs_three_forwards(tmp_path: Path) -> None:
    step = backward(F.conv2d, leaf(2, 4, 16, 16), leaf(8, 2, 3, 3), groups=2)
    assert matrix_flops(record(step, tmp_path)) == 3 * 2 * 2 * 8 * 14 * 14 * 2 * 9


@pytest.mark.parametrize("causal", [False, True])
def test_attention_flops_equal_those_of_torch(causal: bool, tmp_path: Path) -> None:
    def attend() -> None:
        out = F.scaled_dot_product_attention(
            *(leaf(2, 4, 32, 16) for _ in range(3)), is_causal=causal
        )
        out.sum().backward()

    scored = 32 * 33 // 2 if causal else 32 * 32
    forward, back = 2, 5
    assert matrix_flops(record(attend, tmp_path)) == (forward + back) * 2 * 2 * 4 * scored * 16


def test_attention_flops_equal_those_of_the_math_backend(tmp_path: Path) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 4, 32, 16)

    def fused() -> None:
        F.scaled_dot_product_attention(q, q, q)

    def math() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            F.scaled_dot_product_attention(q, q, q)

    assert matrix_flops(record(fused, tmp_path)) == counted(math)
    assert matrix_flops(record(math, tmp_path)) == counted(math)


def test_recurrent_layer_flops_equal_its_matmuls(tmp_path: Path) -> None:
    layer = torch.nn.LSTM(16, 32, batch_first=True)
    x = torch.randn(4, 10, 16)

    def infer() -> None:
        with torch.no_grad():
            layer(x)

    weights = 4 * 32 * 16 + 4 * 32 * 32
    assert matrix_flops(record(infer, tmp_path)) == 2 * 4 * 10 * weights


@pytest.mark.parametrize("name", ["transformer", "unet", "gru", "rnn", "experts"])
def test_whole_models_count_each_operator_once(name: str, tmp_path: Path) -> None:
    from tests.ops.models import MODELS

    _, loss = MODELS[name]()

    def train() -> None:
        loss().backward()  # type: ignore[attr-defined]

    train()
    assert matrix_flops(record(train, tmp_path)) == counted(train)
