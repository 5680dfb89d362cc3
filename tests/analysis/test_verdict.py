"""What the verdict says beside the group."""

from boundby.analysis.verdict import _main_cause, find_verdict
from boundby.model import DeviceKind, HostKind
from boundby.model.account import Account, Group
from tests.faults.step_models import step_model_of
from tests.timelines import Scene


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
