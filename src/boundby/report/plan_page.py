"""A plan as one page: roofline, parts of the step, scaling; the formula of each term on demand."""

from __future__ import annotations

from html import escape

from boundby.model import units
from boundby.model.lab import Axis, Bar, Bars, Lines, Mark, Plot, Series
from boundby.model.plan import PlanResult, PlanSearch, PlanServing
from boundby.report import plot
from boundby.report.plan import estimate, rates, serving_rows
from boundby.report.static_page import document

_STYLE = """
details { margin: 4px 0; } summary { cursor: pointer; }
pre { white-space: pre-wrap; max-width: 90ch; color: var(--soft); margin: 4px 0 12px; }
.service td { text-align: left; vertical-align: top; }
"""
# The roofline is drawn this far on either side of the ridges and of the step's own intensities.
_MARGIN = 8.0


def plan_page(found: PlanResult | PlanSearch) -> str:
    """The whole page, without scripts; text from outside is escaped."""
    if isinstance(found, PlanSearch):
        return document(f"{found.title} on {found.chip}", _search(found), _STYLE)
    return document(f"{found.title} on {found.chips} x {found.chip}", _plan(found), _STYLE)


def _plan(result: PlanResult) -> str:
    layout = " ".join(f"{axis}={ways}" for axis, ways in result.mesh.items())
    plots: list[Plot] = [_parts(result)]
    if result.peak_flops and result.roofs:
        plots.append(_roofline(result, result.peak_flops))
    if len(result.scaling) > 1:
        plots.append(_scaling(result.scaling))
    if result.serving and len(result.serving.curve) > 1:
        plots.append(_throughput(result.serving))
    drawn = "".join(plot.render(each) for each in plots)
    mfu = escape(result.mfu_convention)
    convention = f'<p class="soft">MFU counts {mfu}</p>' if mfu else ""
    return (
        f"<h1>{escape(result.title)}</h1>"
        f'<p class="soft">{result.chips} x {escape(result.chip)} {escape(layout)}</p>'
        f"<p><b>{escape(estimate(result.step_ns))}</b>, bound by {escape(result.bound_by)}. "
        f"Perfect overlap {units.time(result.overlapped_ns)}, "
        f"none {units.time(result.serial_ns)}.</p>"
        f"<p>{escape(rates(result))}</p>{convention}{_notes(result.notes)}{_serving(result)}"
        f'<section><div class="plots">{drawn}</div></section>'
        f"<section><h2>Parts</h2>{_terms(result)}{_formulas(result)}</section>"
        f"{_memory(result)}{_limits(result)}"
    )


def _notes(notes: list[str]) -> str:
    return "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)


def _parts(result: PlanResult) -> Bars:
    bars = [
        Bar(name=f"{term.name} ({term.axis})" if term.axis else term.name, value=term.exposed_ns)
        for term in result.terms
    ]
    return Bars(
        title="exposed time by part of the step",
        axis=Axis(name="exposed time", unit="ns", log=False),
        bars=bars,
    )


def _roofline(result: PlanResult, peak: float) -> Lines:
    ridges = [peak / roof.bytes_per_s for roof in result.roofs]
    intensities = [roof.intensity for roof in result.roofs if roof.intensity]
    low, high = min(ridges + intensities) / _MARGIN, max(ridges + intensities) * _MARGIN
    series = [
        Series(
            name=roof.name,
            points=[(low, low * roof.bytes_per_s), (ridge, peak), (high, peak)],
        )
        for roof, ridge in zip(result.roofs, ridges, strict=True)
    ]
    marks = [
        Mark(x=roof.intensity, name=roof.name.rpartition(", ")[2])
        for roof in result.roofs
        if roof.intensity
    ]
    return Lines(
        title="roofline of one chip",
        x=Axis(name="operations per byte", unit=""),
        y=Axis(name="rate", unit="FLOP/s"),
        series=series,
        marks=marks,
    )


def _scaling(points: list[tuple[int, float]]) -> Lines:
    most = points[0][1]
    return Lines(
        title="the same batch on more chips",
        x=Axis(name="chips"),
        y=Axis(name="tokens/s", unit=""),
        series=[
            Series(name="planned", points=[(chips, chips * rate) for chips, rate in points]),
            Series(
                name="linear from the fewest chips",
                points=[(chips, chips * most) for chips, _ in points],
                predicted=True,
            ),
        ],
    )


def _throughput(result: PlanServing) -> Lines:
    return Lines(
        title="throughput against time per token, by batch",
        x=Axis(name="time per output token", unit="ns"),
        y=Axis(name="output tokens/s"),
        series=[Series(name="served", points=[(ns, rate) for _, ns, rate in result.curve])],
    )


def _terms(result: PlanResult) -> str:
    whole = sum(term.exposed_ns for term in result.terms) or 1.0
    rows = "".join(
        f"<tr><td>{escape(term.name)}</td><td>{escape(term.axis or '')}</td>"
        f"<td>{units.time(term.total_ns)}</td><td>{units.time(term.exposed_ns)}</td>"
        f"<td>{units.share(term.exposed_ns / whole)}</td></tr>"
        for term in result.terms
    )
    head = "<tr><th>part</th><th>axis</th><th>time</th><th>exposed</th><th>share</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _formulas(result: PlanResult) -> str:
    return "".join(
        f"<details><summary>formula: {escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in result.formulas.items()
    )


def _memory(result: PlanResult) -> str:
    if not result.memory:
        return ""
    bars = [Bar(name=part.name, value=part.bytes) for part in result.memory]
    used = sum(part.bytes for part in result.memory)
    fits = "fits" if result.fits else "does not fit"
    drawn = plot.render(
        Bars(
            title="memory of the fullest chip",
            axis=Axis(name="bytes", unit="B", log=False),
            bars=bars,
        )
    )
    return (
        f"<section><h2>Memory</h2><p>{units.size(used)} of {units.size(result.memory_capacity)}: "
        f"{fits}</p>{drawn}</section>"
    )


def _limits(result: PlanResult) -> str:
    rows = "".join(
        f"<tr><td>{escape(limit.name)}</td>"
        f"<td>{escape(units.quantity(limit.value, limit.unit))}</td>"
        f'<td class="soft">{escape(limit.meaning)}</td></tr>'
        for limit in result.limits
    )
    return f"<section><h2>Thresholds</h2><table>{rows}</table></section>" if rows else ""


def _serving(result: PlanResult) -> str:
    if not result.serving:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in serving_rows(result.serving)
    )
    return f'<section><h2>Service</h2><table class="service">{rows}</table></section>'


def _search(result: PlanSearch) -> str:
    head = "<tr><th>layout</th><th>chips</th><th>micro-batch</th><th>recompute</th><th>step</th>"
    head += "<th>MFU</th><th>memory</th><th></th></tr>"
    rows = "".join(
        f"<tr><td>{escape(' '.join(f'{axis}={ways}' for axis, ways in choice.mesh.items()))}</td>"
        f"<td>{choice.chips}</td><td>{choice.micro_batch:g}</td><td>{escape(choice.recompute)}</td>"
        f"<td>{units.time(choice.step_ns.expected)}</td><td>{units.share(choice.mfu)}</td>"
        f'<td>{units.size(choice.memory_bytes)}</td><td class="soft">{escape(choice.why)}</td></tr>'
        for choice in result.choices
    )
    drawn = ""
    if result.kind == "sweep" and len(result.choices) > 1:
        points = [(float(choice.chips), choice.step_ns.expected) for choice in result.choices]
        drawn = plot.render(
            Lines(
                title="step time by number of chips",
                x=Axis(name="chips"),
                y=Axis(name="step", unit="ns"),
                series=[Series(name="best layout", points=points)],
            )
        )
    return (
        f"<h1>{escape(result.title)} on {escape(result.chip)}</h1>"
        f'<p class="soft">{result.considered} layouts, {result.fitting} fit</p>'
        f"{_notes(result.notes)}"
        f"<section>{drawn}<table><thead>{head}</thead><tbody>{rows}</tbody></table></section>"
    )
