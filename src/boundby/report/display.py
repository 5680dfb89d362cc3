"""Registers how a diagnosis shows itself when it is printed."""

from __future__ import annotations

import io

from rich.console import Console

from boundby.model.diagnosis import Diagnosis, renderers
from boundby.report.proofs import ProofsReport
from boundby.report.terminal import DiagnosisReport

_WIDTH = 100


def as_text(diagnosis: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, highlight=False)
    console.print(DiagnosisReport(diagnosis))
    if diagnosis.proofs:
        console.print()
        console.print(ProofsReport(diagnosis, warnings=False))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


renderers["text/plain"] = as_text
