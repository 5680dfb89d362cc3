"""Registers how a diagnosis shows itself, printed and in a notebook; and how far measuring is."""

from __future__ import annotations

from boundby.model import progress as waiting
from boundby.model.diagnosis import renderers
from boundby.report.page import in_notebook
from boundby.report.progress import progress_bar
from boundby.report.terminal import as_text

renderers["text/plain"] = as_text
renderers["text/html"] = in_notebook
waiting.progress_listeners.append(progress_bar)
