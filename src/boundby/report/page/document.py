"""The HTML around the content: one file, no network requests, no executable content from traces."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib import resources

from boundby.model import units
from boundby.model.comparison import Comparison
from boundby.model.diagnosis import Diagnosis
from boundby.report.comparison import as_text as comparison_as_text
from boundby.report.page.content import comparison_content, diagnosis_content
from boundby.report.terminal import as_text

_FRAME = (
    '<iframe title="boundby" sandbox="allow-scripts allow-popups allow-downloads" srcdoc="{page}" '
    'style="width:100%;height:820px;border:1px solid #8884;border-radius:6px"></iframe>'
)


def diagnosis_page(diagnosis: Diagnosis) -> str:
    bound = diagnosis.verdict.bound_by
    words = "bound by: unknown" if bound == "unknown" else f"{bound}-bound"
    if diagnosis.verdict.or_bound_by:
        words = f"{bound}- or {diagnosis.verdict.or_bound_by}-bound"
    title = f"{words}, {units.time(diagnosis.step.wall_ns)}"
    if diagnosis.target:
        title += f" · {diagnosis.target.rsplit('/', 1)[-1]}"
    return _document(title, diagnosis_content(diagnosis), as_text(diagnosis, verbose=True))


def comparison_page(comparison: Comparison) -> str:
    title = f"{comparison.before.name} against {comparison.after.name}"
    return _document(title, comparison_content(comparison), comparison_as_text(comparison))


def in_notebook(diagnosis: Diagnosis) -> str:
    """The page inside its own frame, where it cannot affect the notebook."""
    return _FRAME.format(page=html.escape(diagnosis_page(diagnosis), quote=True))


def _document(title: str, content: str, text: str) -> str:
    """The HTML document. Its policy allows only this script and this style: names from a trace
    cannot run."""
    script, style = _part("bundle.js"), _part("bundle.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="boundby">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><pre>{html.escape(text)}</pre></noscript>
<div id="page"></div>
<script type="application/json" id="content">{content}</script>
<details id="notices"><summary>Licences of the parts in this page</summary>
<pre>{html.escape(_part("NOTICES.txt"))}</pre></details>
<script>{script}</script>
</body>
</html>
"""


@cache
def _part(name: str) -> str:
    return (resources.files("boundby.report.page") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
