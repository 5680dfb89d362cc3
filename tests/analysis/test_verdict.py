"""What the verdict says beside the group."""

import msgspec
import numpy as np

from boundby.analysis.verdict import _main_cause, find_verdict
from boundby.model import DeviceKind, HostKind, Machine, OpCall
from boundby.model.account import Account, Group
from boundby.step.model import StepModel
from tests.faults.step_models import step_model_of
from tests.timelines import Scene, tensor


def test_bandwidth_verdict_names_communication() -> None:
    scene = Scene(end=1100.0)
    launch = scene.on_host(0, 10, kind=HostKind.LAUNCH, name="cudaLaunchKernel")
    scene.on_device(
        20, 1020, DeviceKind.COLLECTIVE, "ncclDevKernel_AllReduce", launch=launch, size=4096
    )
    why = find_verdict(step_model_of(scene.timeline())).verdict.why
    assert "100% of the bandwidth time is communication" in why


def test_overhead_verdict_does_not_mention_communication() -> None:
    scene = Scene(end=1100.0)
    launch = scene.on_host(0, 10, kind=HostKind.LAUNCH, name="cudaLaunchKernel")
    scene.on_device(20, 30, launch=launch)
    assert "communication" not in find_verdict(step_model_of(scene.timeline())).verdict.why


def test_cpu_wait_is_not_mentioned_without_overhead() -> None:
    nothing = Group()
    account = Account(compute=nothing, bandwidth=nothing, overhead=nothing, unknown=nothing)
    assert _main_cause(account, "overhead") == ""


def replayed(*, graph: bool) -> StepModel:
    """A step of one kernel of unknown cost, and one operator whose shapes are known."""
    scene = Scene(end=1100.0)
    call = OpCall(name="aten::add", args=(tensor(8), tensor(8)))
    operator = scene.on_host(0, 10, call=call)
    scene.on_device(10, 12, launch=operator)
    launch = scene.on_host(12, 20, kind=HostKind.LAUNCH, name="cudaGraphLaunch")
    scene.on_device(20, 1020, name="gemm_kernel", launch=launch)
    timeline = scene.timeline()
    device = msgspec.structs.replace(timeline.device, graph=np.array([False, graph]))
    return step_model_of(msgspec.structs.replace(timeline, device=device))


def test_unknown_verdict_says_what_would_give_the_costs() -> None:
    verdict = find_verdict(replayed(graph=True)).verdict
    assert verdict.bound_by == "unknown" and "--capture FILE" in verdict.why
    assert "--capture" not in find_verdict(replayed(graph=False)).verdict.why
    scene = Scene(end=1100.0)
    launch = scene.on_host(0, 10, kind=HostKind.LAUNCH, name="cudaLaunchKernel")
    scene.on_device(20, 1020, name="gemm_kernel", launch=launch)
    assert "no shapes" in find_verdict(step_model_of(scene.timeline())).verdict.why
    unknown = Machine(device="unknown device", kind="cuda")
    assert "roofs" in find_verdict(step_model_of(scene.timeline(), unknown)).verdict.why
