import pytest

from boundby.hardware import datasheet
from boundby.model.errors import BoundbyError
from boundby.plan import chips


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("h100", "H100 SXM"),
        ("a100", "A100 SXM 80GB"),
        ("a100-40gb", "A100 SXM 40GB"),
        ("A100-PCIe-80GB", "A100 PCIe 80GB"),
        ("v5e", "TPU v5e"),
        ("tpu-v5p", "TPU v5p"),
        ("b200", "B200"),
        ("gb200", "GB200"),
        ("RTX4090", "RTX 4090"),
        ("RTX3080-10GB", "RTX 3080 10GB"),
        ("trn1", "Trainium1"),
        ("a100-40", "A100 SXM 40GB"),
        ("h100-80", "H100 SXM"),
    ],
)
def test_chips_are_found_by_common_names(asked: str, found: str) -> None:
    assert chips.find(asked).name == found


def test_names_of_boards_and_racks_are_those_of_their_chips() -> None:
    names = {"h100-sxm5-80gb": "H100 SXM", "dgx-h100": "H100 SXM", "gb200-nvl72": "GB200"}
    assert {name: chips.find(name).name for name in names} == names


def test_unknown_chip_suggests_the_nearest() -> None:
    with pytest.raises(BoundbyError, match="nearest are"):
        chips.find("h1000")


def test_every_fabric_names_its_source_and_is_in_range() -> None:
    for chip in datasheet.chips():
        if chip.fabric is None:
            continue
        assert datasheet.source(chip.fabric.source), chip.name
        assert 1e9 <= chip.fabric.egress <= 1e12, chip.name
        assert 1 <= chip.fabric.domain <= 10_000, chip.name
        if chip.fabric.kind == "torus":
            assert chip.fabric.axis_link, chip.name
            assert chip.fabric.pod, chip.name


def test_sustained_rates_stay_below_the_printed_peak() -> None:
    for chip in datasheet.chips():
        for unit, figure in chip.sustained.items():
            assert figure.value < chip.figures[unit].value, chip.name
            assert datasheet.source(figure.source), chip.name


def test_more_power_at_the_same_printed_rate_is_a_higher_sustained_rate() -> None:
    """GB300 at 1400 W, GB200 at 1200 W: the rate grows with the square root."""
    for unit in ("matmul.bfloat16", "matmul.float8"):
        ratio = chips.find("gb300").sustained_rate(unit) / chips.find("gb200").sustained_rate(unit)
        assert ratio == pytest.approx((1400 / 1200) ** 0.5, rel=0.001)
