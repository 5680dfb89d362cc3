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


def _plan(it: PlanResult) -> str:
    layout = " ".join(f"{axis}={ways}" for axis, ways in it.mesh.items())
    plots: list[Plot] = [_parts(it)]
    if it.peak_flops and it.roofs:
        plots.append(_roofline(it, it.peak_flops))
    if len(it.scaling) > 1:
        plots.append(_scaling(it.scaling))
    if it.serving and len(it.serving.curve) > 1:
        plots.append(_throughput(it.serving))
    drawn = "".join(plot.render(each) for each in plots)
    mfu = escape(it.mfu_convention)
    convention = f'<p class="soft">MFU counts {mfu}</p>' if mfu else ""
    return (
        f"<h1>{escape(it.title)}</h1>"
        f'<p class="soft">{it.chips} x {escape(it.chip)} {escape(layout)}</p>'
        f"<p><b>{escape(estimate(it.step_ns))}</b>, bound by {escape(it.bound_by)}. "
        f"Perfect overlap {units.time(it.overlapped_ns)}, none {units.time(it.serial_ns)}.</p>"
        f"<p>{escape(rates(it))}</p>{convention}{_notes(it.notes)}{_serving(it)}"
        f'<section><div class="plots">{drawn}</div></section>'
        f"<section><h2>Parts</h2>{_terms(it)}{_formulas(it)}</section>{_memory(it)}{_limits(it)}"
    )


def _notes(notes: list[str]) -> str:
    return "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)


def _parts(it: PlanResult) -> Bars:
    bars = [
        Bar(name=f"{term.name} ({term.axis})" if term.axis else term.name, value=term.exposed_ns)
        for term in it.terms
    ]
    return Bars(
        title="exposed time by part of the step",
        axis=Axis(name="exposed time", unit="ns", log=False),
        bars=bars,
    )


def _roofline(it: PlanResult, peak: float) -> Lines:
    ridges = [peak / roof.bytes_per_s for roof in it.roofs]
    intensities = [roof.intensity for roof in it.roofs if roof.intensity]
    low, high = min(ridges + intensities) / _MARGIN, max(ridges + intensities) * _MARGIN
    series = [
        Series(
            name=roof.name,
            points=[(low, low * roof.bytes_per_s), (ridge, peak), (high, peak)],
        )
        for roof, ridge in zip(it.roofs, ridges, strict=True)
    ]
    marks = [
        Mark(x=roof.intensity, name=roof.name.rpartition(", ")[2])
        for roof in it.roofs
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


def _throughput(it: PlanServing) -> Lines:
    return Lines(
        title="throughput against time per token, by batch",
        x=Axis(name="time per output token", unit="ns"),
        y=Axis(name="output tokens/s"),
        series=[Series(name="served", points=[(ns, rate) for _, ns, rate in it.curve])],
    )


def _terms(it: PlanResult) -> str:
    whole = sum(term.exposed_ns for term in it.terms) or 1.0
    rows = "".join(
        f"<tr><td>{escape(term.name)}</td><td>{escape(term.axis or '')}</td>"
        f"<td>{units.time(term.total_ns)}</td><td>{units.time(term.exposed_ns)}</td>"
        f"<td>{units.share(term.exposed_ns / whole)}</td></tr>"
        for term in it.terms
    )
    head = "<tr><th>part</th><th>axis</th><th>time</th><th>exposed</th><th>share</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _formulas(it: PlanResult) -> str:
    return "".join(
        f"<details><summary>formula: {escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in it.formulas.items()
    )


def _memory(it: PlanResult) -> str:
    if not it.memory:
        return ""
    bars = [Bar(name=part.name, value=part.bytes) for part in it.memory]
    used = sum(part.bytes for part in it.memory)
    fits = "fits" if it.fits else "does not fit"
    drawn = plot.render(
        Bars(
            title="memory of the fullest chip",
            axis=Axis(name="bytes", unit="B", log=False),
            bars=bars,
        )
    )
    return (
        f"<section><h2>Memory</h2><p>{units.size(used)} of {units.size(it.memory_capacity)}: "
        f"{fits}</p>{drawn}</section>"
    )


def _limits(it: PlanResult) -> str:
    rows = "".join(
        f"<tr><td>{escape(limit.name)}</td>"
        f"<td>{escape(units.quantity(limit.value, limit.unit))}</td>"
        f'<td class="soft">{escape(limit.meaning)}</td></tr>'
        for limit in it.limits
    )
    return f"<section><h2>Thresholds</h2><table>{rows}</table></section>" if rows else ""


def _serving(it: PlanResult) -> str:
    if not it.serving:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in serving_rows(it.serving)
    )
    return f'<section><h2>Service</h2><table class="service">{rows}</table></section>'


def _search(it: PlanSearch) -> str:
    head = "<tr><th>layout</th><th>chips</th><th>micro-batch</th><th>recompute</th><th>step</th>"
    head += "<th>MFU</th><th>memory</th><th></th></tr>"
    rows = "".join(
        f"<tr><td>{escape(' '.join(f'{axis}={ways}' for axis, ways in choice.mesh.items()))}</td>"
        f"<td>{choice.chips}</td><td>{choice.micro_batch:g}</td><td>{escape(choice.recompute)}</td>"
        f"<td>{units.time(choice.step_ns.expected)}</td><td>{units.share(choice.mfu)}</td>"
        f'<td>{units.size(choice.memory_bytes)}</td><td class="soft">{escape(choice.why)}</td></tr>'
        for choice in it.choices
    )
    drawn = ""
    if it.kind == "sweep" and len(it.choices) > 1:
        points = [(float(choice.chips), choice.step_ns.expected) for choice in it.choices]
        drawn = plot.render(
            Lines(
                title="step time by number of chips",
                x=Axis(name="chips"),
                y=Axis(name="step", unit="ns"),
                series=[Series(name="best layout", points=points)],
            )
        )
    return (
        f"<h1>{escape(it.title)} on {escape(it.chip)}</h1>"
        f'<p class="soft">{it.considered} layouts, {it.fitting} fit</p>'
        f"{_notes(it.notes)}"
        f"<section>{drawn}<table><thead>{head}</thead><tbody>{rows}</tbody></table></section>"
    )
