"""A page without scripts: one file, nothing loaded, readable in light and dark."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from boundby.report import plot

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
table { border-collapse: collapse; margin: 12px 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 14px 3px 0; } th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 14px; align-items: flex-start; }
svg.plot { max-width: 100%; height: auto; border-radius: 6px; }
"""


def document(title: str, body: str, style: str = "") -> str:
    """The whole page. Its one style is named in the policy by its hash; nothing else may load.

    `body` and `style` are HTML and CSS as they are: the caller escapes what comes from outside.
    """
    style = _STYLE + style + plot.STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )
