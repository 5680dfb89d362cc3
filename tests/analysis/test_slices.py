"""The timeline as slices: host over device, launches tied to kernels, gaps with their cause."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

import boundby
from boundby.analysis import slices
from boundby.analysis.account import attribute_step
from boundby.analysis.slices import MOST_SLICES, slices_of
from boundby.model import DeviceKind, HostKind, OpCall, Timeline
from boundby.model.rows import Slice
from tests.machines import round_machine
from tests.timelines import Scene, tensor

H200 = Path(__file__).parents[1] / "data" / "h200"


def made(timeline: Timeline) -> list[Slice]:
    machine = round_machine()
    return slices_of(timeline, attribute_step(timeline, machine, wall_ns=float(timeline.wall_ns)))


def product(scene: Scene, start: float, *, kernel: tuple[float, float]) -> None:
    """A product of 8192 cubed, launched from the middle of its operator."""
    operands = (tensor(8192, 8192, dtype="bfloat16"),) * 2
    scene.on_host(start, start + 4, call=OpCall(name="aten::mm", args=operands))
    launch = scene.on_host(start + 1, start + 3, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(*kernel, name="gemm", launch=launch)


def test_kernel_slice_has_operator_roofline_minimum_and_launch() -> None:
    scene = Scene(end=3000)
    product(scene, 10, kernel=(20, 2220))
    timeline = scene.timeline()
    machine = round_machine()
    attribution = attribute_step(timeline, machine, wall_ns=3e6)
    found = slices_of(timeline, attribution)
    (kernel,) = (piece for piece in found if (piece.lane, piece.number) == ("stream", 7))
    assert (kernel.name, kernel.start_ns, kernel.ns) == ("gemm", 20_000, 2_200_000)
    assert kernel.op is not None
    assert attribution.ops[kernel.op].name == "aten::mm"
    assert kernel.bound == "compute"
    # 2 x 8192^3 operations at 1 PFLOP/s.
    assert kernel.floor_ns == pytest.approx(2 * 8192**3 / 1e15 * 1e9)
    assert kernel.flow is not None
    (operator,) = (piece for piece in found if piece.name == "aten::mm")
    assert (operator.op, operator.bound) == (kernel.op, None), "it asks for the work, no more"
    launch = found[kernel.flow]
    assert (launch.lane, launch.number, launch.name, launch.cause) == (
        "host",
        1,
        "cudaLaunchKernel",
        "launch",
    )


def test_roofline_minimum_of_an_operator_is_divided_over_its_kernels_by_time() -> None:
    scene = Scene(end=3000)
    product(scene, 10, kernel=(20, 1520))
    scene.on_device(1520, 2020, name="reduce", launch=1)
    kernels = [
        piece for piece in made(scene.timeline()) if (piece.lane, piece.number) == ("stream", 7)
    ]
    first, second = (piece.floor_ns or 0.0 for piece in kernels)
    assert first == pytest.approx(3 * second)
    assert first + second == pytest.approx(2 * 8192**3 / 1e15 * 1e9)


def test_gap_has_the_cause_of_most_of_its_time() -> None:
    scene = Scene(end=200)
    scene.on_host(0, 40, HostKind.DATA, "next")
    launch = scene.on_host(42, 44, HostKind.LAUNCH, "launch")
    sync = scene.on_host(60, 101, HostKind.SYNC, "sync")
    again = scene.on_host(120, 122, HostKind.LAUNCH, "launch")
    assert sync
    scene.on_device(45, 100, launch=launch)
    scene.on_device(125, 190, launch=again)
    gaps = [piece for piece in made(scene.timeline()) if piece.lane == "idle"]
    assert [(gap.start_ns, gap.ns) for gap in gaps] == [
        (0, 45_000),
        (100_000, 25_000),
        (190_000, 10_000),
    ]
    assert [gap.cause for gap in gaps] == ["data", "sync", "python"]


def test_cpu_slices_are_operators() -> None:
    scene = Scene(end=5000)
    operands = (tensor(1024, 1024), tensor(1024, 1024))
    scene.on_host(0, 4000, call=OpCall(name="aten::mm", args=operands))
    (piece,) = made(scene.timeline())
    assert (piece.lane, piece.number, piece.name, piece.bound, piece.op) == (
        "host",
        1,
        "aten::mm",
        "compute",
        0,
    )
    assert piece.floor_ns == pytest.approx(2 * 1024**3 / 5e13 * 1e9)


def test_python_frames_are_shown_only_where_nothing_else_is() -> None:
    scene = Scene(end=100)
    scene.on_host(0, 90, HostKind.PYTHON, "train.py(3): step")
    scene.on_host(1, 40, HostKind.PYTHON, "nn.Module: Linear_0")
    scene.on_host(2, 30, HostKind.OP, "aten::linear")
    scene.on_host(50, 80, HostKind.PYTHON, "augment.py(9): crop")
    scene.on_host(51, 79, HostKind.PYTHON, "augment.py(12): inner")
    scene.on_host(81, 82, HostKind.OBSERVER, "hooks.py(41): __call__")
    scene.on_device(95, 99, DeviceKind.MEMSET, name="memset", size=4)
    names = [
        piece.name for piece in made(scene.timeline()) if (piece.lane, piece.number) == ("host", 1)
    ]
    assert names == ["nn.Module: Linear_0", "aten::linear", "augment.py(9): crop"]


def test_slices_over_the_limit_keep_the_longest_and_their_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "MOST_SLICES", 60)
    monkeypatch.setattr(slices, "_MOST_ON_DEVICE", 20)
    monkeypatch.setattr(slices, "_MOST_GAPS", 10)
    scene = Scene(end=10_000)
    for number in range(50):
        launch = scene.on_host(number * 100, number * 100 + 1, HostKind.LAUNCH, "launch")
        scene.on_host(number * 100 + 2, number * 100 + 3 + number / 10, name="op")
        scene.on_device(number * 100 + 5, number * 100 + 10 + number, launch=launch)
    found = made(scene.timeline())
    assert len(found) == 60
    kernels = [piece for piece in found if (piece.lane, piece.number) == ("stream", 7)]
    assert sorted(piece.ns for piece in kernels) == [(5 + n) * 1000 for n in range(30, 50)]
    assert all(found[piece.flow or 0].name == "launch" for piece in kernels)
    assert sum(piece.lane == "idle" for piece in found) == 10


@pytest.mark.parametrize("name", ["bad_mlp_syncs", "bert_base_b1_overhead"])
def test_slices_of_real_traces_are_consistent(name: str) -> None:
    """Kernels and gaps fill the device's time, each kernel comes after its launch began."""
    diagnosis = boundby.load(H200 / f"{name}.json.gz")
    found = diagnosis.timeline
    assert len(found) <= MOST_SLICES
    kernels = [piece for piece in found if piece.lane == "stream"]
    assert len(kernels) == diagnosis.step.kernels
    idle = sum(piece.ns for piece in found if piece.lane == "idle")
    busy = sum(piece.ns for piece in kernels)
    assert busy + idle == pytest.approx(diagnosis.step.wall_ns, rel=0.02)
    for piece in kernels:
        assert piece.flow is not None
        assert found[piece.flow].start_ns <= piece.start_ns
        assert piece.op is not None
        assert diagnosis.ops[piece.op].bound == piece.bound


def test_two_library_lines_are_two_rows() -> None:
    """The user's line leads into both: each slice points at the row of its own."""
    scene = Scene(end=4000)
    product(scene, 0, kernel=(10, 1500))
    product(scene, 20, kernel=(1500, 3000))
    timeline = scene.timeline()
    host = msgspec.structs.replace(
        timeline.host,
        source=np.zeros(len(timeline.host), np.int32),
        inside=np.array([1, 1, 2, 2], np.int32),
    )
    timeline = msgspec.structs.replace(
        timeline, host=host, sources=["train.py:3", "library.py:10", "library.py:20"]
    )
    attribution = attribute_step(timeline, round_machine(), wall_ns=float(timeline.wall_ns))
    found = [one for one in slices_of(timeline, attribution) if one.lane == "stream"]
    inside = [attribution.ops[one.op].inside for one in found if one.op is not None]
    assert inside == ["library.py:10", "library.py:20"]
