"""Launches, their queue and repeated sequences on a step made by hand."""

import pytest

from boundby.analysis.launches import launch_queue, launch_rows, sequence_rows
from boundby.model import HostKind
from tests.timelines import Scene


def test_each_operator_has_its_delay_and_its_short_kernels() -> None:
    scene = Scene()
    for start, ends in ((0, 5), (10, 40)):
        scene.on_host(start, start + 6, name="aten::add")
        launch = scene.on_host(start + 1, start + 4, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(start + 8, start + 8 + ends, launch=launch)
    (row,) = launch_rows(scene.timeline())
    assert (row.name, row.kernels, row.short) == ("aten::add", 2, 1)
    assert (row.delay_ns, row.kernel_ns, row.shortest_ns) == (7000, 22500, 5000)


def test_launch_that_waits_for_a_full_queue_is_blocked() -> None:
    """300 launches of 2 us each while the first kernel runs for a millisecond; one takes 200 us."""
    scene = Scene(end=2000)
    at = 0.0
    for number in range(300):
        took = 200 if number == 250 else 2
        launch = scene.on_host(at, at + took, HostKind.LAUNCH, "cudaLaunchKernel")
        first = number == 0
        scene.on_device(
            1.0 if first else 1000 + number, 1000.0 if first else 1000.5 + number, launch=launch
        )
        at += took
    queue = launch_queue(scene.timeline())
    assert queue is not None
    assert queue.longest == 298
    assert queue.blocked_ns == pytest.approx(198_000)
    assert launch_queue(Scene().timeline()) is None


def test_repeated_sequences_of_short_kernels_are_found() -> None:
    """add, mul, exp three times, a long kernel between them."""
    scene = Scene(end=200)
    for start in (0, 50, 100):
        for offset, name in enumerate(("add", "mul", "exp")):
            scene.on_device(start + 2 * offset, start + 2 * offset + 1, name=name)
        scene.on_device(start + 10, start + 40, name="gemm")
    (row,) = sequence_rows(scene.timeline())
    assert row.kernels == ["add", "mul", "exp"]
    assert (row.count, row.ns) == (3, 9000)
    assert sequence_rows(Scene().timeline()) == []
