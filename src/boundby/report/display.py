"""Registers how a diagnosis shows itself: printed, and in a notebook."""

from __future__ import annotations

from boundby.model.diagnosis import renderers
from boundby.report.page import in_notebook
from boundby.report.terminal import as_text

renderers["text/plain"] = as_text
renderers["text/html"] = in_notebook
