"""Registers how a diagnosis shows itself when printed or in a notebook, and the progress bar."""

from __future__ import annotations

from boundby.model.diagnosis import renderers
from boundby.model.progress import progress_displays
from boundby.report.page import in_notebook
from boundby.report.progress import progress_bar
from boundby.report.terminal import as_text

renderers["text/plain"] = as_text
renderers["text/html"] = in_notebook
progress_displays.append(progress_bar)
