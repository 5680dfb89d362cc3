"""Whether a step is inference: its fixes are then worded differently."""

from __future__ import annotations

import numpy as np

from boundby.model import HostKind, Phase, Timeline
from boundby.step.model import StepView


def is_inference(step: StepView) -> bool:
    """Whether operators ran, none of them in a backward pass or an optimizer."""
    return step.memoised(_is_inference)


def _is_inference(step: StepView) -> bool:
    return infers(step.timeline)


def infers(timeline: Timeline) -> bool:
    """The same for a timeline."""
    host = timeline.host
    trains = np.isin(host.phase, [Phase.BACKWARD, Phase.OPTIMIZER]).any()
    named = any("backward" in name.lower() for name in timeline.names)
    return bool((host.kind == HostKind.OP).any()) and not trains and not named
