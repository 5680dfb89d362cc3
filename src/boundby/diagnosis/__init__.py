"""The conductor: what was captured, and the machine, into a diagnosis."""

from __future__ import annotations

from boundby.diagnosis.advice import Timer
from boundby.diagnosis.live import diagnose_capture, require_steps
from boundby.diagnosis.traces import diagnose_trace

__all__ = ["Timer", "diagnose_capture", "diagnose_trace", "require_steps"]
