"""Whether a step is inference, for which fixes are worded differently."""

from __future__ import annotations

import numpy as np

from boundby.model import HostKind, Phase, Timeline
from boundby.step.model import StepView

_OF_TRAINING = (Phase.BACKWARD, Phase.OPTIMIZER)


def is_inference(step: StepView) -> bool:
    """Whether operators ran, none of them in a backward pass or an optimizer."""
    return step.memoised(_is_inference)


def _is_inference(step: StepView) -> bool:
    return infers(step.timeline)


def infers(timeline: Timeline) -> bool:
    """The same for a timeline."""
    host, of_programs = timeline.host, timeline.device.phase
    trains = np.isin(host.phase, _OF_TRAINING).any()
    # Operators of a program that was compiled as a whole have phases of their own.
    if of_programs is not None:
        trains = trains or np.isin(of_programs, _OF_TRAINING).any()
    named = any("backward" in name.lower() for name in timeline.names)
    return bool((host.kind == HostKind.OP).any()) and not trains and not named
