import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boundby.model import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (736, "736 ns"),
        (12_345, "12.3 us"),
        (999_600, "1.00 ms"),
        (57_600_000, "57.6 ms"),
        (1_200_000_000, "1.20 s"),
        (200_000_000_000, "3 min 20 s"),
        (-90_000_000_000, "-1 min 30 s"),
        (0.25, "250 ps"),
        (0.000_02, "0.02 ps"),
    ],
)
def test_times_have_three_digits_and_a_unit(ns: float | None, text: str) -> None:
    assert units.time(ns) == text


def test_rates_and_sizes_have_prefixes() -> None:
    assert units.rate(7.79e14, "FLOP/s") == "779 TFLOP/s"
    assert units.rate(4.27e12, "B/s") == "4.27 TB/s"
    assert units.rate(None, "B/s") == "-"
    assert units.size(16.8e6) == "16.8 MB"
    assert units.count(9.75e6) == "9.75 M"
    assert units.count(12) == "12"


def test_shares_are_shown_as_percentages() -> None:
    assert units.share(0.61) == "61%"
    assert units.share(0.025) == "2.5%"
    assert units.share(0.0) == "0%"
    assert units.share(0.000_02) == "<0.1%"
    assert units.share(-0.000_02) == ">-0.1%"
    assert units.share(0.9552, decimals=2) == "95.52%"
    assert units.share(0.000_02, decimals=2) == "<0.01%"
    assert units.share(None) == "-"


def test_ages_are_shown_in_words() -> None:
    assert units.age(3) == "just now"
    assert units.age(61) == "1 minute ago"
    assert units.age(3 * 86400) == "3 days ago"


NUMBER = re.compile(r"-?[\d,]*\d(?:\.\d+)?(?:e[-+]?\d+)?")
SCALES = {"ps": 1e-3, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def is_three_digits(number: str) -> bool:
    """At most three significant digits, and no more than the whole ones of a large number."""
    product_precision = number.lstrip("-").replace(",", "").partition("e")[0]
    return "." not in product_precision or len(product_precision.replace(".", "").lstrip("0")) <= 3


@given(st.floats(1e-3, 1e12) | st.floats(-1e12, -1e-3))
@example(1e-3)
@example(999.5)
@example(59_999_999_999.0)
def test_nonzero_time_is_never_shown_as_zero(ns: float) -> None:
    text = units.time(ns)
    parts = re.findall(rf"({NUMBER.pattern}) (ps|ns|us|ms|min|s)\b", text)
    assert parts and all(is_three_digits(number) for number, _ in parts)
    read = sum(abs(float(number.replace(",", ""))) * SCALES[unit] for number, unit in parts)
    assert read == pytest.approx(abs(ns), rel=0.051)
    assert text.startswith("-") == (ns < 0)


@given(st.floats(1e-3, 1e12), st.sampled_from(["B", "FLOP/s", "B/s", "x", "rows"]))
def test_nonzero_quantity_is_never_shown_as_zero(value: float, unit: str) -> None:
    text = units.quantity(value, unit)
    match = re.fullmatch(rf"({NUMBER.pattern}) ?([kMGTPE]?) ?{unit}", text)
    assert match is not None, text
    assert is_three_digits(match[1])
    assert float(match[1].replace(",", "")) * PREFIXES[match[2]] == pytest.approx(value, rel=0.051)


@given(st.floats(1e-12, 1), st.sampled_from([None, 0, 1, 2]))
@example(0.005, 0)
def test_nonzero_share_is_never_shown_as_zero(value: float, decimals: int | None) -> None:
    text = units.share(value, decimals=decimals)
    number = text.removesuffix("%")
    if number.startswith("<"):
        assert value * 100 < float(number[1:])
        return
    assert float(number) > 0
    assert float(number) == pytest.approx(value * 100, rel=1.01)


@pytest.mark.parametrize("unit", ["ns", "B", "FLOP/s", "share", "x", "rows"])
def test_zero_is_shown_as_zero(unit: str) -> None:
    assert re.match(r"0(?![.\d])", units.quantity(0.0, unit))


def test_speedup_beyond_100_is_a_bound() -> None:
    assert units.times(1.254) == "1.25x"
    assert units.times(13336300000.0) == "over 100x"


def test_negligible_middle_of_a_range_is_shown_as_zero() -> None:
    assert units.time_range(1.0, 0.0, 2.6e6) == f"{units.time_range(0.0, 0.0, 2.6e6)}"
    assert units.time_range(1.0, 0.0, 2.6e6).endswith("ms (0 to 2.6)")
    assert units.time_range(7.9e6, 0.0, 33e6) == "7.9 ms (0 to 33)"
