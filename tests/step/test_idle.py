import pytest

from boundby.model import HostKind
from boundby.model.intervals import union
from boundby.step.idle_causes import gap_causes, idle_rows
from tests.timelines import US, Scene


def labels(scene: Scene) -> dict[str, float]:
    timeline = scene.timeline()
    busy = union(timeline.device.start_ns, timeline.device.duration_ns)
    parts = gap_causes(timeline, *busy).parts
    return {label: float(ns.sum()) / US for label, ns in parts.items()}


def test_idle_time_before_the_first_and_after_the_last_kernel_counts() -> None:
    scene = Scene(end=100)
    launch = scene.on_host(40, 45, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(50, 80, launch=launch)
    found = labels(scene)
    # 0-40 interpreter, 40-45 the call, 45-50 latency; 80-100 after the last kernel.
    assert found == pytest.approx({"python": 60, "launch": 10, "sync": 0, "data": 0, "unseen": 0})
    assert sum(found.values()) == pytest.approx(70)


def test_waiting_for_the_loader_is_idle_for_data() -> None:
    scene = Scene(end=100)
    scene.on_host(10, 60, HostKind.DATA, "enumerate(DataLoader)")
    launch = scene.on_host(70, 75, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(75, 100, launch=launch)
    assert labels(scene) == pytest.approx(
        {"python": 20, "launch": 5, "sync": 0, "data": 50, "unseen": 0}
    )


def test_idle_time_after_a_sync_lasts_to_the_delayed_kernel() -> None:
    scene = Scene(end=60)
    first = scene.on_host(0, 2, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_host(5, 22, HostKind.SYNC, "cudaStreamSynchronize")
    second = scene.on_host(36, 38, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(2, 20, launch=first)
    scene.on_device(40, 60, launch=second)
    found = labels(scene)
    assert found["sync"] == pytest.approx(20)  # idle from 20 to 40, all of it the sync's doing
    assert found["launch"] == pytest.approx(2)


def test_idle_time_before_queued_work_is_launch_latency() -> None:
    scene = Scene(end=30)
    first = scene.on_host(0, 1, HostKind.LAUNCH, "cudaLaunchKernel")
    second = scene.on_host(1, 2, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(1, 10, launch=first)
    scene.on_device(12, 30, launch=second)
    assert labels(scene) == pytest.approx(
        {"python": 0, "launch": 3, "sync": 0, "data": 0, "unseen": 0}
    )


def test_idle_time_without_host_events_is_not_attributed_to_the_host() -> None:
    scene = Scene(end=100)
    scene.on_device(10, 40)
    scene.on_device(60, 100)
    assert labels(scene) == pytest.approx(
        {"python": 0, "launch": 0, "sync": 0, "data": 0, "unseen": 30}
    )


def test_queued_work_that_does_not_start_waits_for_something_unseen() -> None:
    scene = Scene(end=200)
    first = scene.on_host(0, 1, HostKind.LAUNCH, "cudaLaunchKernel")
    second = scene.on_host(1, 2, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(1, 10, launch=first)
    scene.on_device(150, 200, launch=second)
    found = {"python": 0, "launch": 1, "sync": 0, "data": 0, "unseen": 140}
    assert labels(scene) == pytest.approx(found)


def test_idle_cause_is_that_of_the_launching_thread() -> None:
    scene = Scene(end=50)
    scene.on_host(0, 50, HostKind.DATA, "enumerate(DataLoader)", thread=1)
    launch = scene.on_host(20, 25, HostKind.LAUNCH, "cudaLaunchKernel", thread=2)
    scene.on_device(25, 50, launch=launch)
    assert labels(scene) == pytest.approx(
        {"python": 20, "launch": 5, "sync": 0, "data": 0, "unseen": 0}
    )


def test_call_that_causes_idle_time_is_named() -> None:
    scene = Scene(end=60)
    first = scene.on_host(0, 2, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_host(5, 22, HostKind.SYNC, "cudaStreamSynchronize")
    second = scene.on_host(36, 38, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(2, 20, launch=first)
    scene.on_device(40, 60, launch=second)
    timeline = scene.timeline()
    (row,) = idle_rows(timeline, *union(timeline.device.start_ns, timeline.device.duration_ns))
    assert (row.cause, row.name, row.ns) == ("sync", "cudaStreamSynchronize", 17 * US)
