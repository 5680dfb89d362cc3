"""Whole accounts of steps small enough to check by hand, on a machine with round figures."""

import msgspec
import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.analysis.verdict import find_verdict
from boundby.model import UNKNOWN_PRECISION, Cost, DeviceKind, HostKind, OpCall, Precision, Timeline
from boundby.step.build import build_step_model
from boundby.step.op_record import bound_of
from tests.machines import roof, round_machine
from tests.timelines import US, Scene, tensor

MACHINE = round_machine()
TF32 = Precision(products="tf32")


def product(rows: int, inner: int, columns: int, dtype: str = "bfloat16") -> OpCall:
    return OpCall(
        name="aten::mm",
        args=(tensor(rows, inner, dtype=dtype), tensor(inner, columns, dtype=dtype)),
    )


def launched(scene: Scene, at: float, call: OpCall) -> int:
    """An operator that launches one kernel."""
    scene.on_host(at, at + 4, call=call)
    return scene.on_host(at + 1, at + 3, HostKind.LAUNCH, "cudaLaunchKernel")


def replayed(scene: Scene, call: OpCall) -> Timeline:
    """The step with its kernels replayed from a graph, each seen to do a call outside of it."""
    timeline = scene.timeline()
    device = msgspec.structs.replace(
        timeline.device,
        graph=np.ones(len(timeline.device), np.bool_),
        call=np.zeros(len(timeline.device), np.int32),
    )
    return msgspec.structs.replace(timeline, device=device, calls=[call])


def test_every_microsecond_is_in_one_group() -> None:
    scene = Scene(end=400)
    # 2 * 4096^3 = 137 GFLOP at 1 PFLOP/s: a floor of 137 us, in 150 us.
    scene.on_device(10, 160, launch=launched(scene, 0, product(4096, 4096, 4096)))
    # gelu over 64 M floats: 512 MB at 5 TB/s: a floor of 102 us, in 200 us.
    gelu = OpCall(name="aten::gelu", args=(tensor(64, 1_000_000), None))
    scene.on_device(170, 370, launch=launched(scene, 5, gelu))
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=400 * US)
    account = attribution.account
    assert account.compute.ns == pytest.approx(150 * US)
    assert account.compute.excess_ns == pytest.approx((150 - 137.4) * US, rel=0.01)
    assert account.bandwidth.ns == pytest.approx(200 * US)
    assert account.bandwidth.excess_ns == pytest.approx((200 - 102.4) * US, rel=0.01)
    assert account.overhead.ns == pytest.approx(50 * US)
    assert account.unknown.ns == 0
    assert sum(group.ns for group in account.groups().values()) == pytest.approx(400 * US)
    assert sum(group.share for group in account.groups().values()) == pytest.approx(1)


def test_clean_wall_time_determines_idle_time() -> None:
    scene = Scene(end=1000)  # the profiler made the step five times as long
    scene.on_device(500, 600, launch=launched(scene, 450, product(4096, 4096, 2048)))
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=200 * US)
    assert attribution.account.compute.ns == pytest.approx(100 * US)
    assert attribution.account.overhead.ns == pytest.approx(100 * US)
    assert attribution.inferred_share == pytest.approx(0.5)


def test_a_tiny_kernel_is_overhead() -> None:
    scene = Scene(end=20)
    add = OpCall(name="aten::add", args=(tensor(64), tensor(64), 1))
    scene.on_device(10, 12, launch=launched(scene, 0, add))
    account = attribute_step(scene.timeline(), MACHINE, wall_ns=20 * US).account
    assert account.overhead.parts["small_kernels"] == pytest.approx(2 * US)


def test_kernel_without_cost_is_unknown() -> None:
    scene = Scene(end=20)
    mystery = OpCall(name="mylib::mystery", args=(tensor(64),))
    scene.on_device(10, 15, launch=launched(scene, 0, mystery))
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=20 * US)
    assert attribution.account.unknown.ns == pytest.approx(5 * US)
    assert attribution.ops[0].name == "mylib::mystery"


def test_a_copy_to_the_device_is_the_host_link() -> None:
    machine = msgspec.structs.replace(
        MACHINE, roofs=[*MACHINE.roofs, roof("host_link.h2d", 5e10, "B/s")]
    )
    scene = Scene(end=100)
    launch = scene.on_host(0, 5, HostKind.LAUNCH, "cudaMemcpyAsync")
    scene.on_device(10, 60, DeviceKind.COPY_H2D, "Memcpy HtoD", launch=launch, size=1_000_000)
    attribution = attribute_step(scene.timeline(), machine, wall_ns=100 * US)
    assert attribution.account.bandwidth.parts["host_link"] == pytest.approx(50 * US)
    assert attribution.account.bandwidth.excess_ns == pytest.approx(
        30 * US
    )  # 1 MB at 50 GB/s: 20 us


def test_cost_is_divided_over_all_kernels_of_its_operator() -> None:
    scene = Scene(end=400)
    scene.on_host(0, 9, call=product(4096, 4096, 4096))
    first = scene.on_host(1, 3, HostKind.LAUNCH, "cudaLaunchKernel")
    second = scene.on_host(4, 6, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 160, launch=first)
    scene.on_device(160, 210, launch=second)
    (row,) = attribute_step(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.count == 1
    assert row.ns == pytest.approx(200 * US)
    assert row.roof_fraction == pytest.approx(137.4 / 200, rel=0.01)


def test_time_below_the_roofline_minimum_is_marked_and_not_clamped() -> None:
    scene = Scene(end=400)
    scene.on_device(10, 110, launch=launched(scene, 0, product(4096, 4096, 4096)))
    (row,) = attribute_step(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.roof_suspect
    assert row.roof_fraction == pytest.approx(1.374, rel=0.01)


def test_kernel_belongs_to_the_innermost_costed_operator() -> None:
    scene = Scene(end=400)
    a, b = tensor(4096, 4096, dtype="bfloat16"), tensor(4096, 4096, dtype="bfloat16")
    scene.on_host(0, 10, call=OpCall(name="aten::matmul", args=(a, b)))
    scene.on_host(1, 9, call=product(4096, 4096, 4096))
    launch = scene.on_host(2, 4, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 160, launch=launch)
    (row,) = attribute_step(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.name == "aten::mm"


def test_tf32_matmuls_use_the_tf32_roof() -> None:
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=400)
    scene.on_device(10, 310, launch=launched(scene, 0, product(4096, 4096, 4096, "float32")))
    (row,) = attribute_step(scene.timeline(), machine, wall_ns=400 * US, precision=TF32).ops
    assert row.floor_ns == pytest.approx(275 * US, rel=0.01)  # 137 GFLOP at 500 TFLOP/s


@pytest.mark.parametrize(
    ("kernel", "precision"), [("kernel", TF32), ("s1688gemm_128x128", UNKNOWN_PRECISION)]
)
def test_tf32_matmuls_of_a_graph_use_the_tf32_roof(kernel: str, precision: Precision) -> None:
    """Whether the setting says so or the kernel's name, 137 GFLOP at 500 TFLOP/s: 275 us."""
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=400)
    launch = scene.on_host(0, 5, HostKind.LAUNCH, "cudaGraphLaunch")
    scene.on_device(10, 310, name=kernel, launch=launch)
    timeline = replayed(scene, product(4096, 4096, 4096, "float32"))
    (row,) = attribute_step(timeline, machine, wall_ns=400 * US, precision=precision).ops
    assert row.floor_ns == pytest.approx(275 * US, rel=0.01)
    assert not row.roof_suspect


CONVOLUTION = OpCall(
    name="aten::cudnn_convolution",
    args=(tensor(64, 256, 64, 64), tensor(256, 256, 3, 3), (1, 1), (1, 1), (1, 1), 1),
)


@pytest.mark.parametrize(
    ("precision", "unit"),
    [
        (UNKNOWN_PRECISION, "matmul.tf32"),  # as torch has it
        (Precision(products="float32", convolutions="tf32"), "matmul.tf32"),
        (Precision(products="tf32", convolutions="float32"), "matmul.float32"),
    ],
)
def test_convolutions_have_their_own_tf32_setting(precision: Precision, unit: str) -> None:
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=9000)
    scene.on_device(10, 8000, launch=launched(scene, 0, CONVOLUTION))
    (work,) = attribute_step(scene.timeline(), machine, wall_ns=9e6, precision=precision).op_records
    assert work.cost is not None
    assert work.cost.flops.keys() == {unit}


def on_cpu(precision: Precision, *, bfloat16: float) -> dict[str, str]:
    """The units on which a product and a convolution run, beside float32 at 50 TFLOP/s."""
    roofs = [one for one in MACHINE.roofs if one.name != "matmul.bfloat16"]
    machine = msgspec.structs.replace(MACHINE, roofs=[*roofs, roof("matmul.bfloat16", bfloat16)])
    scene = Scene(end=9000)
    scene.on_host(0, 3000, call=product(4096, 4096, 4096, "float32"))
    call = OpCall(
        name="aten::mkldnn_convolution",
        args=(*CONVOLUTION.args[:2], None, (1, 1), (1, 1), (1, 1), 1),
    )
    scene.on_host(3000, 9000, call=call)
    op_records = attribute_step(
        scene.timeline(), machine, wall_ns=9e6, precision=precision
    ).op_records
    return {work.name: unit for work in op_records if work.cost for unit in work.cost.flops}


def test_cpu_float32_matmuls_use_the_roof_of_the_allowed_precision() -> None:
    products = Precision(products="bfloat16", convolutions="float32")
    convolutions = Precision(products="float32", convolutions="bfloat16")
    slow, fast = "matmul.float32", "matmul.bfloat16"
    assert list(on_cpu(UNKNOWN_PRECISION, bfloat16=1e15).values()) == [slow, slow]
    assert list(on_cpu(products, bfloat16=1e15).values()) == [fast, slow]
    assert list(on_cpu(convolutions, bfloat16=1e15).values()) == [slow, fast]


def test_cpu_without_bfloat16_units_computes_in_float32() -> None:
    both = Precision(products="bfloat16", convolutions="bfloat16")
    assert set(on_cpu(both, bfloat16=1e13).values()) == {"matmul.float32"}


def test_operator_classes_show_shares_of_time_and_flops() -> None:
    scene = Scene(end=400)
    scene.on_device(10, 160, launch=launched(scene, 0, product(4096, 4096, 4096)))
    gelu = OpCall(name="aten::gelu", args=(tensor(64, 1_000_000), None))
    scene.on_device(170, 320, launch=launched(scene, 5, gelu))
    classes = {
        row.name: row for row in attribute_step(scene.timeline(), MACHINE, wall_ns=4e5).classes
    }
    assert classes["contraction"].time_share == pytest.approx(0.5)
    assert classes["contraction"].flops_share > 0.98
    assert (classes["elementwise"].slower_than_contractions or 0) > 50


@pytest.mark.parametrize("on_device", [False, True])
def test_collective_has_no_memory_roofline_minimum(on_device: bool) -> None:
    """Without a measured network, the excess of 0.9 ms is unknown."""
    scene = Scene(end=1000)
    call = OpCall(name="c10d::allreduce_", args=((tensor(1_000_000),), None, None, 0))
    if on_device:
        # Not known for a collective by its kernel's name: its operator says so.
        scene.on_device(10, 910, launch=launched(scene, 0, call))
    else:
        scene.on_host(10, 910, call=call)
    timeline = scene.timeline()
    attribution = attribute_step(timeline, MACHINE, wall_ns=1000 * US)
    (row,) = attribution.ops
    assert row.bound == "network"
    assert row.bytes == 8_000_000
    assert row.floor_ns is None
    assert row.excess_ns is None
    assert row.roof_fraction is None
    assert attribution.account.bandwidth.excess_ns == 0
    step_model = build_step_model(timeline, MACHINE, attribution, wall_ns=1000 * US, phases={})
    verdict = find_verdict(step_model).verdict
    assert verdict.bound_by == "bandwidth"
    assert "below the memory roofline" not in verdict.why


def test_cost_without_flops_and_bytes_is_small() -> None:
    assert bound_of(MACHINE, Cost(), 1) == "small"
