"""Products in sixteen bits where there are no units for them."""

import msgspec
import pytest

from boundby.faults import slow_sixteen_bits
from boundby.model import Machine, OpCall
from boundby.step.op_variants import benchmark, in_dtype
from tests.faults.step_models import finding, step_model_of, sure
from tests.machines import roof, round_machine
from tests.timelines import US, Scene, tensor

HALF = tensor(1024, 1024, dtype="bfloat16")
PRODUCT = OpCall(name="aten::mm", args=(HALF, HALF))
CAST = OpCall(name="aten::copy_", args=(HALF, tensor(1024, 1024)))


def machine(bfloat16: float) -> Machine:
    """Two cores of 260 GFLOP/s in float32."""
    others = [one for one in round_machine().roofs if not one.name.startswith("matmul.")]
    products = [roof("matmul.float32", 260e9), roof("matmul.bfloat16", bfloat16)]
    return msgspec.structs.replace(round_machine(), kind="cpu", roofs=[*products, *others])


def scene(*, cast: bool = True) -> Scene:
    """A product at 52 GFLOP/s, of 41.3 ms, after a cast of one."""
    made = Scene(end=42_300)
    if cast:
        made.on_host(0, 1_000, call=CAST)
    made.on_host(1_000, 42_300, call=PRODUCT)
    return made


def test_float32_is_faster_without_16_bit_units() -> None:
    found = sure(step_model_of(scene().timeline(), machine(52e9)), "slow-sixteen-bits")
    # A fifth of the product remains, without casts and their dispatch.
    assert found.saving_ns.expected == pytest.approx((0.8 * 41_300 + 1_000) * US, rel=0.01)
    assert found.saving_ns.low < found.saving_ns.expected < found.saving_ns.high
    assert found.change == 'with torch.autocast("cpu", enabled=False):'


def test_float32_is_benchmarked_if_possible() -> None:
    step_model = step_model_of(scene(cast=False).timeline(), machine(52e9))
    now, then = (
        benchmark(PRODUCT, in_dtype(kind), loose=False) for kind in ("bfloat16", "float32")
    )
    step_model.timings.results |= {now: 40_000 * US, then: 20_000 * US}
    found = slow_sixteen_bits.detect(step_model)
    assert found is not None
    assert step_model.saving(found.expected) == pytest.approx(41_300 / 2 * US, rel=0.01)
    # Nothing is cast: the model itself is in sixteen bits.
    assert found.change == "model = model.float()"


@pytest.mark.parametrize("bfloat16", [1600e9, 230e9])
def test_sixteen_bits_are_not_reported_with_16_bit_units(bfloat16: float) -> None:
    assert (
        finding(step_model_of(scene().timeline(), machine(bfloat16)), "slow-sixteen-bits") is None
    )


def test_slow_16_bit_rate_is_not_the_roof() -> None:
    assert machine(52e9).reach("matmul.bfloat16") == 260e9
    assert machine(1600e9).reach("matmul.bfloat16") == 1600e9
    assert machine(52e9).reach("matmul.float16") is None
