"""Whole accounts of steps small enough to check by hand, on a machine with round figures."""

import msgspec
import numpy as np
import pytest

from boundby.account import Coreless, account_for
from boundby.account.cpu import FreshPages
from boundby.model import UNTOLD, DeviceKind, HostKind, OpCall, Precision, Timeline
from boundby.picture import Picture
from boundby.verdict import judge
from tests.machines import roof, round_machine
from tests.remedies.pictures import at_line
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
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=400 * US)
    account = accounted.account
    assert account.compute.ns == pytest.approx(150 * US)
    assert account.compute.excess_ns == pytest.approx((150 - 137.4) * US, rel=0.01)
    assert account.bandwidth.ns == pytest.approx(200 * US)
    assert account.bandwidth.excess_ns == pytest.approx((200 - 102.4) * US, rel=0.01)
    assert account.overhead.ns == pytest.approx(50 * US)
    assert account.unknown.ns == 0
    assert sum(group.ns for group in account.groups().values()) == pytest.approx(400 * US)
    assert sum(group.share for group in account.groups().values()) == pytest.approx(1)


def test_the_clean_wall_decides_how_much_was_idle() -> None:
    scene = Scene(end=1000)  # the profiler made the step five times as long
    scene.on_device(500, 600, launch=launched(scene, 450, product(4096, 4096, 2048)))
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=200 * US)
    assert accounted.account.compute.ns == pytest.approx(100 * US)
    assert accounted.account.overhead.ns == pytest.approx(100 * US)
    assert accounted.inferred_share == pytest.approx(0.5)


def test_a_tiny_kernel_is_overhead() -> None:
    scene = Scene(end=20)
    add = OpCall(name="aten::add", args=(tensor(64), tensor(64), 1))
    scene.on_device(10, 12, launch=launched(scene, 0, add))
    account = account_for(scene.timeline(), MACHINE, wall_ns=20 * US).account
    assert account.overhead.parts["small_kernels"] == pytest.approx(2 * US)


def test_what_nothing_costs_is_unknown_and_shown() -> None:
    scene = Scene(end=20)
    mystery = OpCall(name="mylib::mystery", args=(tensor(64),))
    scene.on_device(10, 15, launch=launched(scene, 0, mystery))
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=20 * US)
    assert accounted.account.unknown.ns == pytest.approx(5 * US)
    assert accounted.ops[0].name == "mylib::mystery"


def test_a_copy_to_the_device_is_the_host_link() -> None:
    machine = msgspec.structs.replace(
        MACHINE, roofs=[*MACHINE.roofs, roof("host_link.h2d", 5e10, "B/s")]
    )
    scene = Scene(end=100)
    launch = scene.on_host(0, 5, HostKind.LAUNCH, "cudaMemcpyAsync")
    scene.on_device(10, 60, DeviceKind.COPY_H2D, "Memcpy HtoD", launch=launch, size=1_000_000)
    accounted = account_for(scene.timeline(), machine, wall_ns=100 * US)
    assert accounted.account.bandwidth.parts["host_link"] == pytest.approx(50 * US)
    assert accounted.account.bandwidth.excess_ns == pytest.approx(30 * US)  # 1 MB at 50 GB/s: 20 us


def test_a_cost_is_spread_over_all_kernels_of_its_operator() -> None:
    scene = Scene(end=400)
    scene.on_host(0, 9, call=product(4096, 4096, 4096))
    first = scene.on_host(1, 3, HostKind.LAUNCH, "cudaLaunchKernel")
    second = scene.on_host(4, 6, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 160, launch=first)
    scene.on_device(160, 210, launch=second)
    (row,) = account_for(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.count == 1
    assert row.ns == pytest.approx(200 * US)
    assert row.roof_fraction == pytest.approx(137.4 / 200, rel=0.01)


def test_faster_than_light_is_flagged_never_clamped() -> None:
    scene = Scene(end=400)
    scene.on_device(10, 110, launch=launched(scene, 0, product(4096, 4096, 4096)))
    (row,) = account_for(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.roof_suspect
    assert row.roof_fraction == pytest.approx(1.374, rel=0.01)


def test_the_innermost_costed_operator_owns_a_kernel() -> None:
    scene = Scene(end=400)
    a, b = tensor(4096, 4096, dtype="bfloat16"), tensor(4096, 4096, dtype="bfloat16")
    scene.on_host(0, 10, call=OpCall(name="aten::matmul", args=(a, b)))
    scene.on_host(1, 9, call=product(4096, 4096, 4096))
    launch = scene.on_host(2, 4, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 160, launch=launch)
    (row,) = account_for(scene.timeline(), MACHINE, wall_ns=400 * US).ops
    assert row.name == "aten::mm"


def test_tf32_products_meet_the_tf32_roof() -> None:
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=400)
    scene.on_device(10, 310, launch=launched(scene, 0, product(4096, 4096, 4096, "float32")))
    (row,) = account_for(scene.timeline(), machine, wall_ns=400 * US, precision=TF32).ops
    assert row.floor_ns == pytest.approx(275 * US, rel=0.01)  # 137 GFLOP at 500 TFLOP/s


@pytest.mark.parametrize(("kernel", "precision"), [("kernel", TF32), ("s1688gemm_128x128", UNTOLD)])
def test_tf32_products_of_a_graph_meet_the_tf32_roof(kernel: str, precision: Precision) -> None:
    """Whether the setting says so or the kernel's name, 137 GFLOP at 500 TFLOP/s: 275 us."""
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=400)
    launch = scene.on_host(0, 5, HostKind.LAUNCH, "cudaGraphLaunch")
    scene.on_device(10, 310, name=kernel, launch=launch)
    timeline = replayed(scene, product(4096, 4096, 4096, "float32"))
    (row,) = account_for(timeline, machine, wall_ns=400 * US, precision=precision).ops
    assert row.floor_ns == pytest.approx(275 * US, rel=0.01)
    assert not row.roof_suspect


CONVOLUTION = OpCall(
    name="aten::cudnn_convolution",
    args=(tensor(64, 256, 64, 64), tensor(256, 256, 3, 3), (1, 1), (1, 1), (1, 1), 1),
)


@pytest.mark.parametrize(
    ("precision", "unit"),
    [
        (UNTOLD, "matmul.tf32"),  # as torch has it
        (Precision(products="float32", convolutions="tf32"), "matmul.tf32"),
        (Precision(products="tf32", convolutions="float32"), "matmul.float32"),
    ],
)
def test_convolutions_have_a_setting_of_their_own(precision: Precision, unit: str) -> None:
    machine = msgspec.structs.replace(MACHINE, roofs=[*MACHINE.roofs, roof("matmul.tf32", 5e14)])
    scene = Scene(end=9000)
    scene.on_device(10, 8000, launch=launched(scene, 0, CONVOLUTION))
    (work,) = account_for(scene.timeline(), machine, wall_ns=9e6, precision=precision).works
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
    works = account_for(scene.timeline(), machine, wall_ns=9e6, precision=precision).works
    return {work.name: unit for work in works if work.cost for unit in work.cost.flops}


def test_on_a_cpu_float32_products_meet_the_roof_of_what_they_may_be_computed_in() -> None:
    products = Precision(products="bfloat16", convolutions="float32")
    convolutions = Precision(products="float32", convolutions="bfloat16")
    slow, fast = "matmul.float32", "matmul.bfloat16"
    assert list(on_cpu(UNTOLD, bfloat16=1e15).values()) == [slow, slow]
    assert list(on_cpu(products, bfloat16=1e15).values()) == [fast, slow]
    assert list(on_cpu(convolutions, bfloat16=1e15).values()) == [slow, fast]


def test_a_cpu_without_units_for_bfloat16_stays_in_float32_whatever_it_may() -> None:
    both = Precision(products="bfloat16", convolutions="bfloat16")
    assert set(on_cpu(both, bfloat16=1e13).values()) == {"matmul.float32"}


def test_the_classes_show_how_little_arithmetic_most_time_does() -> None:
    scene = Scene(end=400)
    scene.on_device(10, 160, launch=launched(scene, 0, product(4096, 4096, 4096)))
    gelu = OpCall(name="aten::gelu", args=(tensor(64, 1_000_000), None))
    scene.on_device(170, 320, launch=launched(scene, 5, gelu))
    classes = {row.name: row for row in account_for(scene.timeline(), MACHINE, wall_ns=4e5).classes}
    assert classes["contraction"].time_share == pytest.approx(0.5)
    assert classes["contraction"].flops_share > 0.98
    assert (classes["elementwise"].slower_than_contractions or 0) > 50


def test_on_a_cpu_an_operators_overhead_is_taken_off() -> None:
    machine = msgspec.structs.replace(
        MACHINE, overheads=msgspec.structs.replace(MACHINE.overheads, eager_op_ns=2000)
    )
    scene = Scene(end=100)
    gelu = OpCall(name="aten::gelu", args=(tensor(4_000_000), None))
    scene.on_host(10, 60, call=gelu)
    account = account_for(scene.timeline(), machine, wall_ns=100 * US).account
    assert account.bandwidth.ns == pytest.approx(48 * US)
    assert account.overhead.parts["python"] == pytest.approx(52 * US)


def test_on_a_cpu_disturbed_clean_steps_are_the_profiled_one_at_another_pace() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 900, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = scene.timeline()

    def overhead(wall_us: float) -> float:
        account = account_for(timeline, MACHINE, wall_ns=wall_us * US).account
        return account.overhead.ns / (wall_us * US)

    # 100 us without an operator, and 8 to ask for one.
    assert overhead(1000) == pytest.approx(0.108, rel=0.001)
    assert overhead(1200) == pytest.approx(0.108, rel=0.001)
    # Of twice the time nobody knows what it was.
    assert overhead(2000) == pytest.approx(1 - 0.5 * 1.25 * 0.892, rel=0.001)


def test_on_a_cpu_waiting_for_batches_is_what_clean_steps_waited() -> None:
    """While a profiler starts, workers get ahead: the profiled step finds its batch waiting."""
    scene = Scene(end=1000)
    scene.on_host(0, 100, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(100, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    found = account_for(scene.timeline(), MACHINE, wall_ns=3000 * US, data_ns=2100 * US)
    assert found.account.overhead.parts["data"] == pytest.approx(2100 * US)
    # The same 900 us of one operator, 8 of them to ask for it.
    assert found.account.bandwidth.ns == pytest.approx(892 * US)


def test_on_a_cpu_operators_that_make_a_batch_have_their_own_time() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 700, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    relu = OpCall(name="aten::relu", args=(tensor(64, 1_000_000),))
    scene.on_host(100, 600, call=relu)
    scene.on_host(700, 1000, call=relu)
    found = account_for(scene.timeline(), MACHINE, wall_ns=1000 * US, data_ns=700 * US)
    # Of the 700 us, 500 are an operator's, 8 of them to ask for it.
    assert found.account.overhead.parts["data"] == pytest.approx(208 * US)
    assert found.account.bandwidth.ns == pytest.approx((492 + 292) * US)


def test_on_a_cpu_waiting_for_data_that_the_profile_found_ready_is_at_the_loaders_line() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 0, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(0, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = at_line(scene.timeline(), "train.py:5")
    found = account_for(timeline, MACHINE, wall_ns=3000 * US, data_ns=2000 * US)
    (row,) = found.lines
    assert row.where == "train.py:5"
    assert row.parts["data"] == pytest.approx(2000 * US)


def test_on_a_cpu_fresh_memory_of_the_profiled_step_is_not_the_operators() -> None:
    """Of two operators that make tensors, one small, and one that writes into its own, the first
    had 625 pages to itself, of which 300 cost 1 us; more than it has are the profiler's."""
    scene = Scene(end=1000)
    scene.on_host(0, 600, call=OpCall(name="aten::relu", args=(tensor(64, 10_000),)))
    scene.on_host(600, 700, call=OpCall(name="aten::relu", args=(tensor(1000),)))
    scene.on_host(700, 1000, call=OpCall(name="aten::relu_", args=(tensor(64, 10_000),)))
    asking = MACHINE.overheads.eager_op_ns or 0.0
    for count, each_us, first in ((300, 1.0, 300), (5000, 0.4, 350)):
        pages = FreshPages(count=count, each_ns=each_us * US)
        wall = (first + 400) * US
        found = account_for(scene.timeline(), MACHINE, wall_ns=wall, fresh_pages=pages)
        took = [work.ns for work in found.works]
        assert took == pytest.approx([first * US - asking, 100 * US - asking, 300 * US - asking])
        assert found.scaled == 1


def test_on_a_cpu_time_without_a_core_is_no_operators() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = at_line(scene.timeline(), "train.py:5")
    found = account_for(
        timeline, MACHINE, wall_ns=1000 * US, coreless=Coreless(clean_ns=400 * US, profiled_ns=0.0)
    )
    assert found.account.bandwidth.ns == pytest.approx(600 * US, rel=0.02)
    assert found.account.overhead.parts["core"] == pytest.approx(400 * US)
    assert found.account.overhead.ns == pytest.approx(400 * US, rel=0.03)
    assert {row.where: round(row.ns / US) for row in found.lines} == {
        "train.py:5": 600,
        "unknown": 400,
    }


def test_on_a_cpu_a_profiled_step_that_waited_for_its_core_too() -> None:
    """It took 2 ms and had a core for half of it; clean ones took 1.6, of which they had one for
    one: half of what an operator took is its own, and Python's time stays Python's."""
    scene = Scene(end=2000)
    scene.on_host(0, 1200, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    coreless = Coreless(clean_ns=600 * US, profiled_ns=1000 * US)
    found = account_for(scene.timeline(), MACHINE, wall_ns=1600 * US, coreless=coreless)
    assert found.account.bandwidth.ns == pytest.approx(600 * US, rel=0.02)
    assert found.account.overhead.parts["core"] == pytest.approx(600 * US)
    assert found.account.overhead.parts["python"] == pytest.approx(400 * US, rel=0.02)


def test_on_a_cpu_work_is_counted_once_where_it_is_done() -> None:
    """A product that first copies its bias does the product itself; a wrapper does nothing."""
    scene = Scene(end=100)
    bias, a, b = tensor(512), tensor(512, 512), tensor(512, 512)
    scene.on_host(0, 90, call=OpCall(name="aten::linear", args=(a, b, bias)))
    scene.on_host(5, 85, call=OpCall(name="aten::addmm", args=(bias, a, b, 1, 1)))
    scene.on_host(10, 20, call=OpCall(name="aten::copy_", args=(tensor(512), bias, False)))
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=100 * US)
    rows = {row.name: row for row in accounted.ops}
    assert "aten::linear" not in rows
    assert rows["aten::addmm"].ns == pytest.approx((80 - 10 - 8) * US)  # 8 us: an eager operator
    assert accounted.utilisation.hfu == pytest.approx(2 * 512**3 / 5e13 * 1e9 / (100 * US))


def test_on_a_cpu_what_compiled_code_does_before_it_runs_is_overhead() -> None:
    scene = Scene(end=100)
    scene.on_host(10, 20, name="TorchDynamo Cache Lookup")
    scene.on_host(20, 90, name="Torch-Compiled Region: 0/0")
    scene.on_host(25, 40, name="AOTDispatcher Runtime Wrapper Prologue")
    scene.on_host(40, 60, call=OpCall(name="aten::gelu", args=(tensor(4_000_000), None)))
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=100 * US)
    assert {row.name for row in accounted.ops} == {"aten::gelu"}
    assert accounted.account.unknown.ns == 0


def test_on_a_cpu_a_collective_is_the_networks_and_counted_once() -> None:
    """The thread that asked for it waits while gloo's own thread does it."""
    scene = Scene(end=100)
    call = OpCall(name="c10d::allreduce_", args=((tensor(1_000_000),), None, None, 0))
    scene.on_host(10, 60, call=call)
    call = OpCall(name="gloo:all_reduce", args=((tensor(1_000_000),),))
    scene.on_host(20, 70, kind=HostKind.ANNOTATION, thread=9, call=call)
    accounted = account_for(scene.timeline(), MACHINE, wall_ns=100 * US)
    account = accounted.account
    overhead = MACHINE.overheads.eager_op_ns or 0.0
    # 42 us of the first, and a fifth of the other's, in which nobody waits for it any more.
    assert account.bandwidth.parts["network"] == pytest.approx((50 * US - overhead) * 1.2)
    assert account.bandwidth.parts["device_memory"] == 0
    # A message is what is reduced, however often it goes in and out.
    (row,) = accounted.collectives
    assert (row.name, row.bytes) == ("gloo:all_reduce", 4_000_000)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_collective_has_no_floor_of_the_memorys(on_device: bool) -> None:
    """Nobody measured the network: what of 0.9 ms is too much is not known."""
    scene = Scene(end=1000)
    call = OpCall(name="c10d::allreduce_", args=((tensor(1_000_000),), None, None, 0))
    if on_device:
        # Not known for a collective by its kernel's name: its operator says so.
        scene.on_device(10, 910, launch=launched(scene, 0, call))
    else:
        scene.on_host(10, 910, call=call)
    timeline = scene.timeline()
    accounted = account_for(timeline, MACHINE, wall_ns=1000 * US)
    (row,) = accounted.ops
    assert row.bound == "network"
    assert row.bytes == 8_000_000
    assert row.floor_ns is None
    assert row.excess_ns is None
    assert row.roof_fraction is None
    assert accounted.account.bandwidth.excess_ns == 0
    picture = Picture(timeline, MACHINE, accounted, wall_ns=1000 * US, phases={})
    verdict = judge(picture).verdict
    assert verdict.bound_by == "bandwidth"
    assert "slow kernels" not in verdict.why


def test_on_a_cpu_work_without_recorded_shapes_is_unknown_not_overhead() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 80, name="aten::mm")
    scene.on_host(5, 6, name="aten::resolve_conj")
    account = account_for(scene.timeline(), MACHINE, wall_ns=100 * US).account
    assert account.unknown.ns > 60 * US


def compiled_region(inside: str) -> float:
    """The unknown time of a step that is one compiled region which calls something of 50 us."""
    scene = Scene(end=100)
    scene.on_host(0, 100, name="Torch-Compiled Region: 0/0")
    scene.on_host(5, 95, HostKind.ANNOTATION, "## Call CompiledFxGraph fabc ##")
    if inside != "nothing":
        scene.on_host(6, 94, HostKind.PYTHON, "generated.py(9): call")
    if inside == "a kernel without a name":
        scene.on_host(20, 70, HostKind.PYTHON, "<built-in function kernel>")
    if inside == "a kernel":
        call = OpCall(name="cpp_fused_gelu_0", args=(tensor(1_000_000),))
        scene.on_host(20, 70, call=call)
    return account_for(scene.timeline(), MACHINE, wall_ns=100 * US).account.unknown.ns


def test_on_a_cpu_compiled_code_only_calls_where_its_kernels_are_seen() -> None:
    assert compiled_region("a kernel") == 0
    assert compiled_region("Python alone") == 0
    # Its kernels are somewhere in there.
    assert compiled_region("a kernel without a name") > 50_000
    assert compiled_region("nothing") > 50_000
