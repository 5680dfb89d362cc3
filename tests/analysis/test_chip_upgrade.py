"""Faster chips for a step near its roofs, by the ratio of the datasheets."""

import msgspec
import pytest

from boundby.analysis import chip_upgrade
from boundby.analysis.chip_upgrade import faster_chips
from boundby.hardware import datasheet
from boundby.model import MemoryLevel
from boundby.model.estimate import Estimate
from boundby.model.finding import ChipRow, Finding
from tests.faults.step_models import step_model_of
from tests.machines import roof, round_machine
from tests.step.test_replay import GELU, PRODUCT, scene_of

H200 = msgspec.structs.replace(round_machine(), chip="H200 SXM")


def on(chip: str, rows: list[ChipRow]) -> ChipRow | None:
    return next((row for row in rows if row.chip == chip), None)


def test_matmuls_scale_with_matrix_rate() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    row = on("B200", faster_chips(step_model_of(timeline, H200), []))
    assert row is not None
    # 2,250 over 989 TFLOP/s on paper, nine tenths of which are expected.
    assert row.wall_ns.low == pytest.approx(timeline.wall_ns * 989 / 2250, rel=0.05)
    assert row.wall_ns.expected == pytest.approx(timeline.wall_ns * 989 / 2250 / 0.9, rel=0.05)
    assert row.wall_ns.low < row.wall_ns.expected < row.wall_ns.high


def test_memory_traffic_scales_with_bandwidth() -> None:
    timeline = scene_of([(GELU, 104.0)] * 40, host_us=1).timeline()
    row = on("B200", faster_chips(step_model_of(timeline, H200), []))
    assert row is not None
    assert row.wall_ns.low == pytest.approx(timeline.wall_ns * 4.8 / 8.0, rel=0.05)


def test_lower_bandwidth_slows_memory_bound_operators() -> None:
    """Products at 165 TFLOP/s and traffic at 1,008 GB/s; an L40S has 362 and 864."""
    machine = msgspec.structs.replace(
        round_machine(),
        chip="RTX 4090",
        roofs=[
            roof("matmul.bfloat16", 165e12),
            roof("vector.float32", 82.6e12),
            roof("memory.dram", 1008e9, "B/s"),
        ],
        levels=[MemoryLevel(roof="memory.dram", capacity=None)],
    )
    # 137 GFLOP and 512 MB: 833 and 508 us at the roof.
    timeline = scene_of([(PRODUCT, 833.0), (GELU, 508.0)] * 20, host_us=1).timeline()
    chips = {chip.name: chip for chip in datasheet.chips()}
    row = chip_upgrade._on(step_model_of(timeline, machine), chips["RTX 4090"], chips["L40S"])
    assert row is not None
    on_paper = 20e3 * (833 * 165 / 362 + 508 * 1008 / 864)
    assert row.wall_ns.low == pytest.approx(on_paper, rel=0.02)
    assert row.wall_ns.expected == pytest.approx(on_paper / 0.9, rel=0.02)


def test_faster_chip_keeps_host_time() -> None:
    """The host takes 100 us for each product of 138: no chip makes them shorter than that."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=100).timeline()
    rows = faster_chips(step_model_of(timeline, H200), [])
    assert rows
    assert all(row.wall_ns.low >= 0.98 * 40 * 100e3 for row in rows)


def test_no_chip_is_suggested_while_findings_remain() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    wall = float(timeline.wall_ns)
    saving = Estimate(low=0.0, expected=0.1 * wall, high=0.2 * wall)
    found = Finding(fault="host-sync", group="overhead", saving_ns=saving, change="")
    assert faster_chips(step_model_of(timeline, H200), [found]) == []


@pytest.mark.parametrize(
    ("device_us", "host_us"),
    [(138.0, 400.0), (1000.0, 5.0)],  # a device that waits; kernels at a seventh of their roof
)
def test_no_chip_is_suggested_for_a_step_below_its_roofs(device_us: float, host_us: float) -> None:
    timeline = scene_of([(PRODUCT, device_us)] * 40, host_us=host_us).timeline()
    assert faster_chips(step_model_of(timeline, H200), []) == []


def test_unknown_device_is_compared_with_no_chip() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    assert faster_chips(step_model_of(timeline), []) == []
