"""Exposed and small collectives, on constructed steps."""

import msgspec
import pytest

from boundby.faults import (
    exposed_collectives,
)
from boundby.model import DeviceKind, HostKind, OpCall, Phase, Timeline
from tests.faults.step_models import finding, in_phase, step_model_of
from tests.machines import roof, round_machine
from tests.step.test_replay import PRODUCT
from tests.timelines import Scene, tensor

LINK = msgspec.structs.replace(
    round_machine(), roofs=[*round_machine().roofs, roof("network.link", 1e11, "B/s")]
)


def reducing(
    messages: list[tuple[float, int]],
    *,
    hidden: bool = False,
    kind: str = "all_reduce",
    world: int = 2,
    call: OpCall | None = None,
) -> Timeline:
    """Collectives of some time and size on a stream of their own, after products or beside them."""
    scene = Scene()
    clock = 0.0
    for _ in range(5):
        scene.on_host(clock, clock + 5, call=PRODUCT)
        launch = scene.on_host(clock + 4, clock + 5, HostKind.LAUNCH, "launch")
        begin = 5 + 138.0 * (clock / 5)
        scene.on_device(begin, begin + 138, launch=launch)
        clock += 5
    begin = 6.0 if hidden else 5 + 5 * 138.0
    for device_us, size in messages:
        scene.on_host(clock, clock + 5, name=f"nccl:{kind}", call=call)
        launch = scene.on_host(clock + 4, clock + 5, HostKind.LAUNCH, "launch")
        kind_of_event = DeviceKind.COLLECTIVE
        scene.on_device(
            begin, begin + device_us, kind_of_event, "ncclKernel", 20, launch=launch, size=size
        )
        begin += device_us
        clock += 5
    scene.end = max(begin, 5 + 5 * 138.0)
    # Two steps in a row would overlap: the optimizer waits for the gradients.
    scene.on_host(clock, scene.end, HostKind.SYNC, "cudaStreamSynchronize")
    return msgspec.structs.replace(scene.timeline(), world=world)


def test_exposed_all_reduce_is_overlapped_with_matmuls() -> None:
    training = in_phase(reducing([(400.0, 10_000_000)]), Phase.BACKWARD)
    step_model = step_model_of(training, LINK)
    detection = exposed_collectives.detect(step_model)
    assert detection is not None
    # 10 MB cross the link once (2 x 1/2), at half of 100 GB/s: 200 us and a latency of 20, of
    # which half is expected to hide; at best all 400 us, behind 690 us of products.
    assert step_model.base_ns - step_model.evaluate(detection.expected) == pytest.approx(
        110e3, rel=0.01
    )
    assert step_model.base_ns - step_model.evaluate(detection.high) == pytest.approx(
        400e3, rel=0.01
    )
    assert "DistributedDataParallel" in detection.change


@pytest.mark.parametrize(
    ("kind", "size", "crossing"),
    [
        # A rank gives a part of what it gathers, and all of what it scatters: of 80 MB, 70 cross.
        ("_all_gather_base", 10_000_000, 70e6),
        ("_reduce_scatter_base", 80_000_000, 70e6),
        ("all_reduce", 40_000_000, 70e6),
    ],
)
def test_all_gather_of_eight_ranks_moves_seven_eighths(
    kind: str, size: int, crossing: float
) -> None:
    step_model = step_model_of(reducing([(2000.0, size)], kind=kind, world=8), LINK)
    (one,) = exposed_collectives._collectives(step_model, 20e3)
    assert one.transfer_ns == pytest.approx(20e3 + crossing / 5e10 * 1e9)


def test_large_consecutive_gathers_are_not_merged() -> None:
    """1 MB a rank, 7 of which come in: 140 us on the link, seven latencies long."""
    step_model = step_model_of(
        reducing([(200.0, 1_000_000)] * 10, kind="_all_gather_base", world=8), LINK
    )
    detection = exposed_collectives.detect(step_model)
    assert detection is not None
    assert detection.low.op_ns == {}


def test_group_size_follows_from_message_sizes() -> None:
    """Two of eight ranks gather 10 MB each: as much comes in."""
    call = OpCall(name="c10d::_allgather_base_", args=(tensor(5_000_000), tensor(2_500_000), None))
    step_model = step_model_of(reducing([(2000.0, 10_000_000)], world=8, call=call), LINK)
    (one,) = exposed_collectives._collectives(step_model, 20e3)
    assert one.transfer_ns == pytest.approx(20e3 + 10e6 / 5e10 * 1e9)


def test_small_consecutive_messages_are_merged() -> None:
    step_model = step_model_of(reducing([(20.0, 1000)] * 10), LINK)
    detection = exposed_collectives.detect(step_model)
    assert detection is not None
    # Ten latencies of 20 us, of which nine are saved, with the gaps of 1.1 us before them.
    assert step_model.base_ns - step_model.evaluate(detection.low) == pytest.approx(
        189.9e3, rel=0.01
    )


def test_overlapped_collective_is_not_reported() -> None:
    assert exposed_collectives.detect(step_model_of(reducing([(400.0, 1)], hidden=True))) is None


def test_all_to_all_cannot_overlap() -> None:
    step_model = step_model_of(reducing([(400.0, 10_000_000)], kind="all_to_all"), LINK)
    assert finding(step_model, "exposed-collectives") is None
