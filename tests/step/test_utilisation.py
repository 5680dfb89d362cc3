"""How much of the machine the model's own arithmetic uses, by hand."""

import pytest

from boundby.analysis.account import attribute_step
from boundby.model import HostKind, OpCall
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor

BATCH, HEADS, LENGTH, WIDTH = 1, 16, 4096, 64


def test_recomputed_attention_scores_are_not_model_flops() -> None:
    q = tensor(BATCH, HEADS, LENGTH, WIDTH, dtype="bfloat16")
    forward = OpCall(
        name="aten::_scaled_dot_product_flash_attention", args=(q, q, q, 0.0, False, False)
    )
    backward = OpCall(
        name="aten::_scaled_dot_product_flash_attention_backward",
        args=(q, q, q, q, q, None, None, None, LENGTH, LENGTH, 0.0, False),
    )
    scene = Scene(end=1000)
    for at, call in ((0, forward), (500, backward)):
        scene.on_host(at, at + 4, call=call)
        launch = scene.on_host(at + 1, at + 3, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(at + 10, at + 410, launch=launch)
    used = attribute_step(scene.timeline(), round_machine(), wall_ns=1000 * US).utilisation
    # One product over the scores: 2 x 16 x 4096^2 x 64 = 34.4 GFLOP, 34.4 us at 1 PFLOP/s.
    product_us = 2 * BATCH * HEADS * LENGTH**2 * WIDTH / 1e9
    assert product_us == pytest.approx(34.4, abs=0.05)
    assert used.hfu == pytest.approx((2 + 5) * product_us / 1000)
    assert used.mfu == pytest.approx((2 + 4) * product_us / 1000)
