"""Formats times, sizes and rates for people: three significant digits and a unit.

Only zero is shown as zero, and an unknown value as a dash. web/src/format.ts is the page's version.
"""

from __future__ import annotations

_NO_FIGURE = "-"
PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_MINUTE_NS = 60_000_000_000  # definition
_SECONDS_IN = {"minute": 60, "hour": 3600, "day": 86400}


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.0995 or value == 0:
        return f"{value:.2f}" if value else "0"
    return f"{value:.2g}"


def _scaled(value: float, unit: str) -> str:
    magnitude = abs(value)
    step = 0
    while magnitude >= 999.5 and step < len(PREFIXES) - 1:
        magnitude /= 1000
        value /= 1000
        step += 1
    return f"{_three_digits(value)} {PREFIXES[step]}{unit}"


def time(ns: float | None) -> str:
    """250 ps, 12.3 us, 45.6 ms, 1.20 s, 3 min 20 s; a dash for an unknown."""
    if ns is None:
        return _NO_FIGURE
    magnitude = abs(ns)
    if 0 < magnitude < 0.9995:
        return f"{_three_digits(ns * 1e3)} ps"
    if magnitude < 999.5:
        return f"{_three_digits(ns)} ns"
    if magnitude < 999_500:
        return f"{_three_digits(ns / 1e3)} us"
    if magnitude < 999_500_000:
        return f"{_three_digits(ns / 1e6)} ms"
    if magnitude < _MINUTE_NS:
        return f"{_three_digits(ns / 1e9)} s"
    minutes, rest = divmod(round(magnitude / 1e9), 60)
    return f"{'-' if ns < 0 else ''}{minutes} min {rest} s"


def time_range(expected: float, low: float, high: float) -> str:
    """A predicted time with its range in one unit, two digits: 7.9 ms (0 to 33)."""
    if expected * 1e3 < high:  # nearly nothing
        expected = 0.0
    name, scale = _unit_of(expected or high)
    middle, *ends = (_two_digits(ns / scale) for ns in (expected, low, high))
    return f"{middle} {name} ({' to '.join(ends)})"


def _unit_of(ns: float) -> tuple[str, float]:
    for name, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= 0.9995 * scale:
            return name, scale
    return "ns", 1.0


def _two_digits(value: float) -> str:
    if abs(value) >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.1g}"


def size(count: float | None) -> str:
    """Return a number of bytes, decimal: 16.8 MB."""
    return _NO_FIGURE if count is None else _scaled(count, "B")


def rate(value: float | None, unit: str) -> str:
    """Return a rate with its unit: 779 TFLOP/s, 4.27 TB/s."""
    return _NO_FIGURE if value is None else _scaled(value, unit)


def count(value: float | None) -> str:
    """Return a plain number: 12, 3.40 k, 9.75 M."""
    if value is None:
        return _NO_FIGURE
    if abs(value) < 999.5 and float(value).is_integer():
        return str(int(value))
    return _scaled(value, "").strip()


def share(value: float | None, *, decimals: int | None = None) -> str:
    """A share (0 to 1) as a percentage: 61%, 2.5%, <0.1%; with `decimals`, always that many."""
    if value is None:
        return _NO_FIGURE
    percent = value * 100
    if percent == 0:
        return "0%"
    if decimals is None:
        decimals = 0 if abs(percent) >= 9.95 else 1
    shown = f"{percent:.{decimals}f}"
    if not float(shown):  # rounded to zero
        return f"{'<' if percent > 0 else '>-'}{10**-decimals:.{decimals}f}%"
    return f"{shown}%"


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit: a time, a size, a rate, a share, a ratio, a number."""
    if value is None:
        return _NO_FIGURE
    if unit == "ns":
        return time(value)
    if unit == "B":
        return size(value)
    if unit.endswith("/s"):
        return rate(value, unit)
    if unit == "share":
        return share(value)
    if unit == "x":
        return f"{_three_digits(value)}x"
    return f"{count(value)} {unit}".strip()


_LARGEST_TIMES = 100  # display limit


def times(factor: float) -> str:
    """A gain as a factor: 1.25x; an implausibly large one as a bound: over 100x."""
    return f"{factor:.2f}x" if factor <= _LARGEST_TIMES else f"over {_LARGEST_TIMES}x"


def printable(text: str) -> str:
    """The text without characters that control a terminal; names come from files."""
    return "".join("?" if _controls(character) else character for character in text)


def _controls(character: str) -> bool:
    return (character < " " and character not in "\t\n") or "\x7f" <= character <= "\x9f"


def age(seconds: float) -> str:
    """How long ago something was: just now, 5 minutes ago, 3 days ago."""
    for name in ("day", "hour", "minute"):
        whole = int(seconds // _SECONDS_IN[name])
        if whole:
            return f"{whole} {name}{'s' if whole > 1 else ''} ago"
    return "just now"
