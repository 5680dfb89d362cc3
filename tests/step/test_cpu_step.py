"""Steps on a CPU, small enough to check by hand: without the profiler, and without waiting."""

import msgspec
import pytest

from boundby.analysis.account import attribute_step
from boundby.model import HostKind, OpCall
from boundby.step.cpu_ops import ExtraPages
from boundby.step.cpu_step import CpuWait
from tests.faults.step_models import at_line
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor

MACHINE = round_machine()


def test_operator_overhead_is_subtracted() -> None:
    machine = msgspec.structs.replace(
        MACHINE, overheads=msgspec.structs.replace(MACHINE.overheads, eager_op_ns=2000)
    )
    scene = Scene(end=100)
    gelu = OpCall(name="aten::gelu", args=(tensor(4_000_000), None))
    scene.on_host(10, 60, call=gelu)
    account = attribute_step(scene.timeline(), machine, wall_ns=100 * US).account
    assert account.bandwidth.ns == pytest.approx(48 * US)
    assert account.overhead.parts["python"] == pytest.approx(52 * US)


def test_disturbed_clean_steps_scale_the_profiled_step() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 900, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = scene.timeline()

    def overhead(wall_us: float) -> float:
        account = attribute_step(timeline, MACHINE, wall_ns=wall_us * US).account
        return account.overhead.ns / (wall_us * US)

    # 100 us without an operator, and 8 to ask for one.
    assert overhead(1000) == pytest.approx(0.108, rel=0.001)
    assert overhead(1200) == pytest.approx(0.108, rel=0.001)
    # The cause of the doubled time is unknown.
    assert overhead(2000) == pytest.approx(1 - 0.5 * 1.25 * 0.892, rel=0.001)


def test_data_waiting_is_that_of_clean_steps() -> None:
    """While a profiler starts, workers get ahead: the profiled step finds its batch waiting."""
    scene = Scene(end=1000)
    scene.on_host(0, 100, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(100, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    found = attribute_step(scene.timeline(), MACHINE, wall_ns=3000 * US, data_ns=2100 * US)
    assert found.account.overhead.parts["data"] == pytest.approx(2100 * US)
    # The same 900 us of one operator, 8 of them to ask for it.
    assert found.account.bandwidth.ns == pytest.approx(892 * US)


def test_operators_that_make_a_batch_have_their_own_time() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 700, HostKind.DATA, "enumerate(DataLoader)#_SingleProcess")
    relu = OpCall(name="aten::relu", args=(tensor(64, 1_000_000),))
    scene.on_host(100, 600, call=relu)
    scene.on_host(700, 1000, call=relu)
    found = attribute_step(scene.timeline(), MACHINE, wall_ns=1000 * US, data_ns=700 * US)
    # Of the 700 us, 500 are an operator's, 8 of them to ask for it.
    assert found.account.overhead.parts["data"] == pytest.approx(208 * US)
    assert found.account.bandwidth.ns == pytest.approx((492 + 292) * US)


def test_data_waiting_absent_from_the_profile_is_at_the_loader_line() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 0, HostKind.DATA, "enumerate(DataLoader)#_MultiProcessing")
    scene.on_host(0, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = at_line(scene.timeline(), "train.py:5")
    found = attribute_step(timeline, MACHINE, wall_ns=3000 * US, data_ns=2000 * US)
    (row,) = found.lines
    assert row.where == "train.py:5"
    assert row.parts["data"] == pytest.approx(2000 * US)


def test_page_faults_of_the_profiled_step_are_subtracted() -> None:
    """Of two operators that make tensors, one small, and one that writes into its own, the first
    had 625 pages to itself, of which 300 cost 1 us; more than it has are the profiler's."""
    scene = Scene(end=1000)
    scene.on_host(0, 600, call=OpCall(name="aten::relu", args=(tensor(64, 10_000),)))
    scene.on_host(600, 700, call=OpCall(name="aten::relu", args=(tensor(1000),)))
    scene.on_host(700, 1000, call=OpCall(name="aten::relu_", args=(tensor(64, 10_000),)))
    asking = MACHINE.overheads.eager_op_ns or 0.0
    for count, each_us, first in ((300, 1.0, 300), (5000, 0.4, 350)):
        pages = ExtraPages(count=count, each_ns=each_us * US)
        wall = (first + 400) * US
        found = attribute_step(scene.timeline(), MACHINE, wall_ns=wall, fresh_pages=pages)
        took = [work.ns for work in found.op_records]
        assert took == pytest.approx([first * US - asking, 100 * US - asking, 300 * US - asking])
        assert found.scaled == 1


def test_cpu_wait_belongs_to_no_operator() -> None:
    scene = Scene(end=1000)
    scene.on_host(0, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    timeline = at_line(scene.timeline(), "train.py:5")
    found = attribute_step(
        timeline, MACHINE, wall_ns=1000 * US, cpu_wait=CpuWait(clean_ns=400 * US, profiled_ns=0.0)
    )
    assert found.account.bandwidth.ns == pytest.approx(600 * US, rel=0.02)
    assert found.account.overhead.parts["core"] == pytest.approx(400 * US)
    assert found.account.overhead.ns == pytest.approx(400 * US, rel=0.03)
    # No line asks to wait for a core.
    assert {row.where: round(row.ns / US) for row in found.lines} == {"train.py:5": 600}


def test_cpu_wait_of_the_profiled_step_is_subtracted() -> None:
    """It took 2 ms and had a core for half of it; clean ones took 1.6, of which they had one for
    one: half of what an operator took is its own, and Python's time stays Python's."""
    scene = Scene(end=2000)
    scene.on_host(0, 1200, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    cpu_wait = CpuWait(clean_ns=600 * US, profiled_ns=1000 * US)
    found = attribute_step(scene.timeline(), MACHINE, wall_ns=1600 * US, cpu_wait=cpu_wait)
    assert found.account.bandwidth.ns == pytest.approx(600 * US, rel=0.02)
    assert found.account.overhead.parts["core"] == pytest.approx(600 * US)
    assert found.account.overhead.parts["python"] == pytest.approx(400 * US, rel=0.02)


@pytest.mark.parametrize("profiled", [1999, 2000, 2600])
def test_profiled_step_that_only_waited_keeps_its_operators(
    profiled: int,
) -> None:
    """What its thread waited may be counted over more than the step: clean ones tell then."""
    scene = Scene(end=2000)
    scene.on_host(0, 1200, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))
    cpu_wait = CpuWait(clean_ns=600 * US, profiled_ns=profiled * US)
    found = attribute_step(scene.timeline(), MACHINE, wall_ns=1600 * US, cpu_wait=cpu_wait)
    assert found.account.overhead.parts["core"] == pytest.approx(600 * US)
    assert found.account.bandwidth.ns == pytest.approx(600 * US, rel=0.02)


def test_nested_operators_are_counted_once() -> None:
    """A product that first copies its bias does the product itself; a wrapper does nothing."""
    scene = Scene(end=100)
    bias, a, b = tensor(512), tensor(512, 512), tensor(512, 512)
    scene.on_host(0, 90, call=OpCall(name="aten::linear", args=(a, b, bias)))
    scene.on_host(5, 85, call=OpCall(name="aten::addmm", args=(bias, a, b, 1, 1)))
    scene.on_host(10, 20, call=OpCall(name="aten::copy_", args=(tensor(512), bias, False)))
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=100 * US)
    rows = {row.name: row for row in attribution.ops}
    assert "aten::linear" not in rows
    assert rows["aten::addmm"].ns == pytest.approx((80 - 10 - 8) * US)  # 8 us: an eager operator
    assert attribution.utilisation.hfu == pytest.approx(2 * 512**3 / 5e13 * 1e9 / (100 * US))


def test_entry_of_compiled_code_is_overhead() -> None:
    scene = Scene(end=100)
    scene.on_host(10, 20, name="TorchDynamo Cache Lookup")
    scene.on_host(20, 90, name="Torch-Compiled Region: 0/0")
    scene.on_host(25, 40, name="AOTDispatcher Runtime Wrapper Prologue")
    scene.on_host(40, 60, call=OpCall(name="aten::gelu", args=(tensor(4_000_000), None)))
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=100 * US)
    assert {row.name for row in attribution.ops} == {"aten::gelu"}
    assert attribution.account.unknown.ns == 0


def test_collective_is_network_time_and_counted_once() -> None:
    """The calling thread waits while gloo's thread works."""
    scene = Scene(end=100)
    call = OpCall(name="c10d::allreduce_", args=((tensor(1_000_000),), None, None, 0))
    scene.on_host(10, 60, call=call)
    call = OpCall(name="gloo:all_reduce", args=((tensor(1_000_000),),))
    scene.on_host(20, 70, kind=HostKind.ANNOTATION, thread=9, call=call)
    attribution = attribute_step(scene.timeline(), MACHINE, wall_ns=100 * US)
    account = attribution.account
    overhead = MACHINE.overheads.eager_op_ns or 0.0
    # 42 us of the first, and a fifth of the other's, which no thread waits for any more.
    assert account.bandwidth.parts["network"] == pytest.approx((50 * US - overhead) * 1.2)
    assert account.bandwidth.parts["device_memory"] == 0
    # A message is what is reduced, however often it goes in and out.
    (row,) = attribution.collectives
    assert (row.name, row.bytes) == ("gloo:all_reduce", 4_000_000)


def test_operators_without_shapes_are_unknown_and_not_overhead() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 80, name="aten::mm")
    scene.on_host(5, 6, name="aten::resolve_conj")
    account = attribute_step(scene.timeline(), MACHINE, wall_ns=100 * US).account
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
    return attribute_step(scene.timeline(), MACHINE, wall_ns=100 * US).account.unknown.ns


def test_compiled_call_has_only_overhead_if_its_kernels_are_recorded() -> None:
    assert compiled_region("a kernel") == 0
    assert compiled_region("Python alone") == 0
    # Its kernels are somewhere in there.
    assert compiled_region("a kernel without a name") > 50_000
    assert compiled_region("nothing") > 50_000


def test_python_is_not_what_operators_leave_if_both_exceed_the_step() -> None:
    """The profiler's cost of events that are shorter than it is taken off nothing else."""
    scene = Scene(end=300)
    scene.on_host(0, 200, HostKind.PYTHON, "train.py(3): f")
    for at in range(100):
        scene.on_host(at, at + 0.2, name="aten::alias")
    scene.on_host(200, 300, call=OpCall(name="aten::relu", args=(tensor(1_000_000),)))
    account = attribute_step(scene.timeline(), MACHINE, wall_ns=200 * US).account
    # 92 us of the last operator, and 100 of Python alone, to which the operators before add theirs.
    assert account.overhead.parts["python"] > 120 * US


def test_profiled_step_may_have_more_work_than_the_usual_one() -> None:
    """200 functions of 2 us and an operator of 500; the profiler is not all that makes it longer
    than the median step if other steps take as long."""
    scene = Scene(end=1000)
    for at in range(200):
        scene.on_host(2 * at, 2 * at + 2, HostKind.PYTHON, "train.py(3): one")
    scene.on_host(500, 1000, call=OpCall(name="aten::relu", args=(tensor(64, 1_000_000),)))

    def python_share(slow_us: float | None) -> float:
        slow_ns = None if slow_us is None else slow_us * US
        found = attribute_step(scene.timeline(), MACHINE, wall_ns=500 * US, slow_ns=slow_ns)
        return found.account.overhead.parts["python"] / (500 * US)

    assert python_share(None) == python_share(500)
    assert python_share(500) < 0.7 * python_share(2000)
