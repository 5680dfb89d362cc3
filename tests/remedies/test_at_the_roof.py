"""When nothing is left: faster chips, by the ratio of their datasheets, under the same host."""

import msgspec
import pytest

from boundby.model.diagnosis import ChipRow, Finding, Range
from boundby.remedies import at_the_roof
from boundby.remedies.at_the_roof import bigger_chips
from tests.machines import round_machine
from tests.remedies.pictures import picture_of
from tests.test_replay import GELU, PRODUCT, scene_of

H200 = msgspec.structs.replace(round_machine(), chip="H200 SXM")


def on(chip: str, rows: list[ChipRow]) -> ChipRow | None:
    return next((row for row in rows if row.chip == chip), None)


def test_products_run_faster_by_the_ratio_of_the_matrix_rates() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    row = on("B200", bigger_chips(picture_of(timeline, H200), []))
    assert row is not None
    # 2,250 over 989 TFLOP/s on paper, nine tenths of which are expected.
    assert row.wall_ns.low == pytest.approx(timeline.wall_ns * 989 / 2250, rel=0.05)
    assert row.wall_ns.expected == pytest.approx(timeline.wall_ns * 989 / 2250 / 0.9, rel=0.05)
    assert row.wall_ns.low < row.wall_ns.expected < row.wall_ns.high


def test_traffic_runs_faster_by_the_ratio_of_the_memories() -> None:
    timeline = scene_of([(GELU, 104.0)] * 40, host_us=1).timeline()
    row = on("B200", bigger_chips(picture_of(timeline, H200), []))
    assert row is not None
    assert row.wall_ns.low == pytest.approx(timeline.wall_ns * 4.8 / 8.0, rel=0.05)


def test_a_faster_chip_waits_for_the_same_host() -> None:
    """The host takes 100 us for each product of 138: no chip makes them shorter than that."""
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=100).timeline()
    rows = bigger_chips(picture_of(timeline, H200), [])
    assert rows
    assert all(row.wall_ns.low >= 0.98 * 40 * 100e3 for row in rows)


def test_no_chip_is_named_while_there_is_something_to_mend() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    wall = float(timeline.wall_ns)
    saving = Range(low=0.0, expected=0.1 * wall, high=0.2 * wall)
    found = Finding(fault="host-sync", group="overhead", saving_ns=saving, change="")
    assert bigger_chips(picture_of(timeline, H200), [found]) == []


@pytest.mark.parametrize(
    ("device_us", "host_us"),
    [(138.0, 400.0), (1000.0, 5.0)],  # a device that waits; kernels at a seventh of their roof
)
def test_no_chip_is_named_for_a_step_that_is_not_at_the_roof(
    device_us: float, host_us: float
) -> None:
    timeline = scene_of([(PRODUCT, device_us)] * 40, host_us=host_us).timeline()
    assert bigger_chips(picture_of(timeline, H200), []) == []


def test_an_unknown_chip_is_compared_with_none() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    assert bigger_chips(picture_of(timeline), []) == []


def test_it_is_never_a_finding() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 40, host_us=1).timeline()
    assert at_the_roof.imagine(picture_of(timeline, H200)) is None
