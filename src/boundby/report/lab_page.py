"""The lab's results as one page: no script, nothing loaded, readable in light and dark."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from boundby.model import units
from boundby.model.lab import LabReport, Result
from boundby.report import plot
from boundby.report.lab import headline, interval
from boundby.report.machine import title

_STYLE = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #ffffff; --ink: #1b1f24;
  --soft: #59636e; --edge: #dfe3e8; --held: #00664a; --missed: #9a4300; --failed: #a3173a; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1014; --card: #14181d; --ink: #e6e9ed;
  --soft: #9aa4af; --edge: #2a3037; --held: #2fc79b; --missed: #f0914a; --failed: #ff8098; } }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1360px; margin: 0 auto; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0; }
p { margin: 6px 0; max-width: 78ch; } .soft { color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: 8px 14px; margin: 18px 0; }
nav a { color: inherit; text-decoration: none; border-bottom: 2px solid var(--edge); }
nav a:hover, nav a:focus { border-color: currentColor; }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 18px 20px; margin: 0 0 18px; overflow-x: auto; }
.held { color: var(--held); } .not-held { color: var(--missed); } .failed { color: var(--failed); }
.not-run { color: var(--soft); } .outcome { font-weight: 600; margin-left: 8px; }
table { border-collapse: collapse; margin: 12px 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 14px 3px 0; } th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 14px; align-items: flex-start; }
svg.plot { max-width: 100%; height: auto; border-radius: 6px; }
"""
_SIGNS = {True: "✓ ", False: "✗ ", None: ""}


def page(report: LabReport) -> str:
    """The whole page. Its one style is named in the policy by its hash; nothing else may load."""
    style = _STYLE + plot.STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    links = "".join(
        f'<a class="{_kind(each)}" href="#{escape(each.name, quote=True)}">'
        f"{_SIGNS[each.held]}{escape(each.name)}</a>"
        for each in report.results
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>boundby lab: {escape(report.machine.device)}</title>"
        f"<style>{style}</style></head><body><main>"
        f"<h1>{escape(headline(report))}</h1>"
        f'<p class="soft">{escape(title(report.machine))} · torch '
        f"{escape(report.machine.torch or '-')} · {escape(report.run_at or '')}</p>"
        "<p>Each figure was predicted from the machine's saved roofs before it was measured; a "
        "law held where the two intervals meet.</p>"
        f"<nav>{links}</nav>{''.join(map(_section, report.results))}</main></body></html>\n"
    )


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
    for name, found in result.measured.items():
        law = result.predicted.get(name)
        kind = {True: "held", False: "not-held", None: ""}[found.held]
        rows.append(
            f'<tr><td><span class="{kind}">{_SIGNS[found.held]}</span>{escape(found.what)}</td>'
            f"<td>{escape(units.quantity(law.value, law.unit)) if law else ''}</td>"
            f'<td class="soft">{escape(interval(law, law.unit)) if law else ""}</td>'
            f"<td>{escape(units.quantity(found.value, found.unit))}</td>"
            f'<td class="soft">{escape(interval(found, found.unit))}</td></tr>'
        )
    head = "<tr><th></th><th>predicted</th><th></th><th>measured</th><th></th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
