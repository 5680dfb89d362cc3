"""Plots as SVG: lines over linear or logarithmic axes, bars with their intervals.

Without script or style: `STYLE` is in the page, or in the file if a plot is a file of its own.
Colours are distinguishable with red-green colour blindness, and each has its own shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape

from boundby.model import units
from boundby.model.lab import Axis, Bars, Lines, Mark, Plot, Series

WIDTH = 640  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 18, 68, 46  # margins in pixels
_HEIGHT = 340  # pixels
_BAR, _GAP, _BAR_LEFT, _BAR_RIGHT = 16, 12, 232, 92  # pixels
_TICKS = 5  # on an axis
_MOST_DECADES = 7  # ticks of a logarithmic axis

# Okabe and Ito's colours, darkened or lightened for contrast with the background.
STYLE = """
.plot { --ground: #ffffff; --ink: #1b1f24; --soft: #59636e; --grid: #e4e7eb;
  --c0: #0062a3; --c1: #b85000; --c2: #007a5a; --c3: #9c4683; --c4: #8a6d00; --c5: #24789e;
  font: 13px system-ui, sans-serif; background: var(--ground); }
@media (prefers-color-scheme: dark) { .plot { --ground: #14181d; --ink: #e6e9ed; --soft: #9aa4af;
  --grid: #2a3037; --c0: #56b4e9; --c1: #f0914a; --c2: #2fc79b; --c3: #dd8fc2;
  --c4: #e6c34a; --c5: #8ad0ee; } }
.plot text { fill: var(--ink); }
.plot .soft { fill: var(--soft); }
.plot .title { font-weight: 600; font-size: 14px; }
.plot .small { font-size: 12px; }
.plot .over { paint-order: stroke; stroke: var(--ground); stroke-width: 4; }
.plot .ground { fill: var(--ground); }
.plot .grid { stroke: var(--grid); stroke-width: 1; }
.plot .axis { stroke: var(--soft); stroke-width: 1; }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .law { stroke-dasharray: 6 4; }
.plot .mark { stroke: var(--ink); stroke-width: 1.5; }
.plot .band { stroke: var(--ink); stroke-width: 2; fill: none; }
.plot .halo { stroke: var(--ground); stroke-width: 5; fill: none; }
.plot .l0 { stroke: var(--c0); } .plot .f0 { fill: var(--c0); }
.plot .l1 { stroke: var(--c1); } .plot .f1 { fill: var(--c1); }
.plot .l2 { stroke: var(--c2); } .plot .f2 { fill: var(--c2); }
.plot .l3 { stroke: var(--c3); } .plot .f3 { fill: var(--c3); }
.plot .l4 { stroke: var(--c4); } .plot .f4 { fill: var(--c4); }
.plot .l5 { stroke: var(--c5); } .plot .f5 { fill: var(--c5); }
"""
_COLOURS = 6  # of the palette

Place = Callable[[float], float]


def render(plot: Plot) -> str:
    """One `<svg>` element, for a page that has `STYLE`."""
    return _lines(plot) if isinstance(plot, Lines) else _bars(plot)


def standalone(plot: Plot) -> str:
    """The same as a separate file."""
    svg = render(plot)
    head = svg.index(">") + 1
    return f"{svg[:head]}<style>{STYLE}</style>{svg[head:]}\n"


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    name = escape(title, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" aria-label="{name}" '
        f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}">'
        f'<rect class="ground" width="{WIDTH}" height="{height:g}"/>' + "".join(parts) + "</svg>"
    )


def _text(
    x: float, y: float, words: str, kind: str = "", anchor: str = "start", turn: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{turn}>'
        f"{escape(words)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def label(value: float, unit: str) -> str:
    """A tick's figure: no zeros after the decimal point."""
    return (
        re.sub(r"(\.\d*?)0+(?=\D|$)", r"\1", units.quantity(value, unit))
        .replace(". ", " ")
        .rstrip(".")
        .replace(".x", "x")
        .replace(".%", "%")
    )


def ticks(low: float, high: float, *, log: bool) -> list[float]:
    """Round figures between two values, few enough to read."""
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        step = max(1, math.ceil((last - first) / _MOST_DECADES))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        candidates = [
            factor * 10.0**power for power in range(first, last + 1, step) for factor in factors
        ]
    else:
        size = (high - low) / _TICKS or 1.0
        power = 10.0 ** math.floor(math.log10(size))
        step_size = next(f * power for f in (1, 2, 5, 10) if f * power >= size)
        count = math.floor(high / step_size)
        candidates = [step_size * i for i in range(math.ceil(low / step_size), count + 1)]
    slack = 1e-9 * abs(high)
    return [tick for tick in candidates if low - slack <= tick <= high + slack]


def _limits(values: Sequence[float], axis: Axis) -> tuple[float, float]:
    if axis.log:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = min(positive), max(positive)
        pad = (high / low) ** 0.05 if high > low else 1.5
        return low / pad, high * pad
    low, high = min(0.0, *values), max(values)
    return low, (high + 0.06 * (high - low)) if high > low else low + 1.0


def _place(low: float, high: float, start: float, end: float, *, log: bool) -> Place:
    if log:
        low, high = math.log(low), math.log(high)
        return lambda value: (
            start + (math.log(max(value, 1e-300)) - low) / (high - low) * (end - start)
        )
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _lines(plot: Lines) -> str:
    xs = [x for series in plot.series for x, _ in series.points] + [m.x for m in plot.marks]
    ys = [y for series in plot.series for _, y in series.points]
    if not xs or not ys:
        return _svg(plot.title, 60, [_text(16, 26, f"{plot.title}: no points", "title")])
    x_low, x_high = _limits(xs, plot.x)
    y_low, y_high = _limits(ys, plot.y)
    across = _place(x_low, x_high, _LEFT, WIDTH - _RIGHT, log=plot.x.log)
    up = _place(y_low, y_high, _HEIGHT - _BOTTOM, _TOP, log=plot.y.log)
    parts = [_text(16, 22, plot.title, "title")]
    for tick in ticks(x_low, x_high, log=plot.x.log):
        x = across(tick)
        parts.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM, "grid"))
        words = label(tick, plot.x.unit)
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, words, "soft small", "middle"))
    for tick in ticks(y_low, y_high, log=plot.y.log):
        y = up(tick)
        parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 8, y + 4, label(tick, plot.y.unit), "soft small", "end"))
    parts.append(_line(_LEFT, _HEIGHT - _BOTTOM, WIDTH - _RIGHT, _HEIGHT - _BOTTOM, "axis"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(_text(middle, _HEIGHT - 8, plot.x.name, "soft small", "middle"))
    parts += _marks(plot.marks, across)
    for index, series in enumerate(plot.series):
        parts += _series(series, index % _COLOURS, across, up)
    parts += _legend(plot.series)
    return _svg(plot.title, _HEIGHT, parts)


def _series(series: Series, colour: int, across: Place, up: Place) -> list[str]:
    places = [(across(x), up(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    law = " law" if series.predicted else ""
    drawn = [f'<polyline class="line l{colour}{law}" points="{path}"/>']
    if not series.predicted:
        drawn += [_shape(x, y, colour) for x, y in places]
    return drawn


def _shape(x: float, y: float, colour: int) -> str:
    """Each colour has its own shape."""
    kind = f'class="f{colour}"'
    if colour % 3 == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>'
    if colour % 3 == 1:
        return f'<rect {kind} x="{x - 3.3:.1f}" y="{y - 3.3:.1f}" width="6.6" height="6.6"/>'
    corners = f"{x:.1f},{y - 4.4:.1f} {x + 4.2:.1f},{y + 3.4:.1f} {x - 4.2:.1f},{y + 3.4:.1f}"
    return f'<polygon {kind} points="{corners}"/>'


def _marks(marks: Sequence[Mark], across: Place) -> list[str]:
    """Vertical lines; labels in the left half are left of their line, the others right."""
    drawn = []
    ordered = sorted(marks, key=lambda mark: mark.x)
    for index, mark in enumerate(ordered):
        x = across(mark.x)
        law = " law" if mark.predicted else ""
        drawn.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM, f"mark{law}"))
        right = index >= len(ordered) / 2
        right = (right and x < WIDTH * 0.75) or x < WIDTH * 0.3
        words = f"{mark.name} {label(float(f'{mark.x:.3g}'), '')}"
        place, anchor = (x + 6, "start") if right else (x - 6, "end")
        y = _HEIGHT - _BOTTOM - 10 - 16 * (index % 4)
        drawn.append(_text(place, y, words, "small over", anchor))
    return drawn


def _legend(series: Sequence[Series]) -> list[str]:
    x, y, drawn = float(_LEFT), 38.0, []
    for index, each in enumerate(series):
        width = 46 + 6.6 * len(each.name)
        if x + width > WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + 16
        colour, law = index % _COLOURS, " law" if each.predicted else ""
        drawn.append(_line(x, y, x + 22, y, f"line l{colour}{law}"))
        if not each.predicted:
            drawn.append(_shape(x + 11, y, colour))
        drawn.append(_text(x + 28, y + 4, each.name, "small"))
        x += width
    return drawn


def _bars(plot: Bars) -> str:
    height = 54 + len(plot.bars) * (_BAR + _GAP)
    ends = [bar.value for bar in plot.bars]
    ends += [end for bar in plot.bars for end in (bar.low, bar.high) if end is not None]
    low, high = _limits(ends or [1.0], plot.axis)
    if plot.axis.log:
        low /= 3
    across = _place(low, high, _BAR_LEFT, WIDTH - _BAR_RIGHT, log=plot.axis.log)
    origin = _BAR_LEFT if plot.axis.log else across(0.0)
    parts = [_text(16, 22, plot.title, "title")]
    banded = any(bar.low is not None for bar in plot.bars)
    if banded:
        parts += _band(WIDTH - 150, WIDTH - 122, 18)
        parts.append(_text(WIDTH - 114, 22, "as predicted", "soft small"))
    for index, bar in enumerate(plot.bars):
        y = 40 + index * (_BAR + _GAP)
        end = across(bar.value)
        start, width = min(origin, end), max(1.0, abs(end - origin))
        parts.append(_text(_BAR_LEFT - 10, y + 12.5, bar.name, "small", "end"))
        parts.append(
            f'<rect class="f0" x="{start:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>'
        )
        furthest = max(end, origin)
        if bar.low is not None and bar.high is not None:
            first, last = max(across(bar.low), _BAR_LEFT), across(bar.high)
            parts += _band(first, last, y + _BAR / 2)
            furthest = max(furthest, last)
        parts.append(_text(furthest + 8, y + 12.5, label(bar.value, plot.axis.unit), "small"))
    parts.append(_line(origin, 34, origin, height - 12, "axis"))
    return _svg(plot.title, height, parts)


def _band(first: float, last: float, y: float) -> list[str]:
    ends = ((first, y, last, y), (first, y - 6, first, y + 6), (last, y - 6, last, y + 6))
    return [_line(*end, kind) for kind in ("halo", "band") for end in ends]
