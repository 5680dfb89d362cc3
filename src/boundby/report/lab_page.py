"""The lab's results as one page: no script, nothing loaded, readable in light and dark."""

from __future__ import annotations

from html import escape

from boundby.model import units
from boundby.model.lab import LabReport, Result
from boundby.report import plot
from boundby.report.lab import headline, interval
from boundby.report.machine import title
from boundby.report.static_page import document

_STYLE = """
.held { color: var(--held); } .not-held { color: var(--missed); } .failed { color: var(--failed); }
.not-run { color: var(--soft); } .outcome { font-weight: 600; margin-left: 8px; }
"""
_SIGNS = {True: "✓ ", False: "✗ ", None: ""}


def page(report: LabReport) -> str:
    """The whole page."""
    links = "".join(
        f'<a class="{_kind(each)}" href="#{escape(each.name, quote=True)}">'
        f"{_SIGNS[each.held]}{escape(each.name)}</a>"
        for each in report.results
    )
    body = (
        f"<h1>{escape(headline(report))}</h1>"
        f'<p class="soft">{escape(title(report.machine))} · torch '
        f"{escape(report.machine.torch or '-')} · {escape(report.run_at or '')}</p>"
        "<p>Each figure was predicted from the machine's saved roofs before it was measured. A law "
        "holds if the two intervals overlap.</p>"
        f"<nav>{links}</nav>{''.join(map(_section, report.results))}"
    )
    return document(f"boundby lab: {report.machine.device}", body, _STYLE)


def _kind(result: Result) -> str:
    return result.outcome.replace(" ", "-")


def _section(result: Result) -> str:
    plots = "".join(plot.render(each) for each in result.plots)
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in result.notes)
    return (
        f'<section id="{escape(result.name, quote=True)}"><h2>{escape(result.name)}'
        f'<span class="outcome {_kind(result)}">{escape(result.outcome)}</span></h2>'
        f"<p>{escape(result.title)}.</p>"
        f'<p class="soft">The claim: {escape(result.claim)}</p>{_table(result)}'
        f"<p>{escape(result.why)}</p>{notes}"
        f'<div class="plots">{plots}</div></section>'
    )


def _table(result: Result) -> str:
    if not result.measured:
        return ""
    rows = []
    for name, measurement in result.measured.items():
        predicted = result.predicted.get(name)
        expected = units.quantity(predicted.value, predicted.unit) if predicted else ""
        expected_range = interval(predicted, predicted.unit) if predicted else ""
        kind = {True: "held", False: "not-held", None: ""}[measurement.held]
        rows.append(
            f'<tr><td><span class="{kind}">{_SIGNS[measurement.held]}</span>'
            f"{escape(measurement.what)}</td>"
            f"<td>{escape(expected)}</td>"
            f'<td class="soft">{escape(expected_range)}</td>'
            f"<td>{escape(units.quantity(measurement.value, measurement.unit))}</td>"
            f'<td class="soft">{escape(interval(measurement, measurement.unit))}</td></tr>'
        )
    head = "<tr><th></th><th>predicted</th><th></th><th>measured</th><th></th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
