"""What work on one stream waits for on another, where no trace says so."""

from dataclasses import replace

import numpy as np
import pytest

from boundby.model import DeviceKind, HostKind, Timeline
from boundby.step.simulator import build_launch_sequence, replay
from tests.timelines import US, Scene


def spread(collective: bool = False) -> Timeline:
    """A product, an operator on two streams of its own, and a product; the host is slow."""
    scene = Scene(end=700)
    kind = DeviceKind.COLLECTIVE if collective else DeviceKind.KERNEL
    for name, at, streams in (("mm", 0, [7]), ("_cudnn_rnn", 100, [13, 14, 14]), ("mm", 500, [7])):
        scene.on_host(at, at + 90 * len(streams), name=f"aten::{name}")
        for place, stream in enumerate(streams):
            start = at + 10 + 90 * place
            launch = scene.on_host(start, start + 5, HostKind.LAUNCH, "cudaLaunchKernel")
            scene.on_device(
                start + 6,
                start + 26,
                kind if stream != 7 else DeviceKind.KERNEL,
                "k",
                stream,
                launch,
            )
    return scene.timeline()


def test_operator_on_own_streams_keeps_its_order() -> None:
    script = build_launch_sequence(spread(), gap_ns=0.0)
    assert script.depends.tolist() == [-1, 0, 0, -1, 3]
    # 20 us each: the first product, the longer of the two streams, the second product.
    at_once = replace(script, host_ns=np.zeros(5), after_ns=0.0, latency_ns=0.0)
    assert replay(at_once) == pytest.approx((20 + 40 + 20) * US)


def test_collective_on_its_own_stream_overlaps_with_following_work() -> None:
    assert (build_launch_sequence(spread(collective=True), gap_ns=0.0).depends < 0).all()
