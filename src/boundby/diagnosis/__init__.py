"""The conductor: turns an observation and a machine into a diagnosis."""

from __future__ import annotations

from boundby.diagnosis.advice import Timer
from boundby.diagnosis.conductor import diagnose
from boundby.diagnosis.steps import require_step

__all__ = ["Timer", "diagnose", "require_step"]
