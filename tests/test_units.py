import pytest

from boundby import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0.00 ns"),
        (736, "736 ns"),
        (12_345, "12.3 us"),
        (999_600, "1.00 ms"),
        (57_600_000, "57.6 ms"),
        (1_200_000_000, "1.20 s"),
        (200_000_000_000, "3 min 20 s"),
    ],
)
def test_times(ns: float | None, text: str) -> None:
    assert units.time(ns) == text


def test_rates_and_sizes() -> None:
    assert units.rate(7.79e14, "FLOP/s") == "779 TFLOP/s"
    assert units.rate(4.27e12, "B/s") == "4.27 TB/s"
    assert units.rate(None, "B/s") == "-"
    assert units.size(16.8e6) == "16.8 MB"
    assert units.count(9.75e6) == "9.75 M"
    assert units.count(12) == "12"


def test_shares() -> None:
    assert units.share(0.61) == "61%"
    assert units.share(0.025) == "2.5%"
    assert units.share(0.0) == "0%"
    assert units.share(None) == "-"


def test_ages() -> None:
    assert units.age(3) == "just now"
    assert units.age(61) == "1 minute ago"
    assert units.age(3 * 86400) == "3 days ago"
