"""Operators of replayed graphs, from a second trace of the same model that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundby.capture import sources
from boundby.model import Note, units
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation

if TYPE_CHECKING:
    from boundby.capture.torch.graph_replays import Recording

# Notes on the other trace.
_ANSWERED = ("operators-not-recorded", "no-shapes")


def read_capture(path: Path) -> Recording:
    """The operators of a trace's median step, run eagerly or captured."""
    from boundby.capture.torch.graph_replays import Recording, recording_of

    timeline = sources.observe(path)[0].timeline
    recording = recording_of(timeline) if timeline is not None else Recording(())
    if not recording.operators:
        raise BoundbyError(
            f"{path}: no operators that launch kernels: --capture takes a trace of the model run "
            "without graphs, or of their capture"
        )
    return recording


def with_capture(observation: Observation, capture: Recording) -> Observation:
    """The observation with those operators assigned to the kernels of its replayed graphs."""
    from boundby.capture.torch.graph_replays import attach_operators

    timeline = observation.timeline
    if timeline is None or not timeline.device.graph.any():
        text = "the step replays no graphs: --capture is not used"
        notes = [*observation.notes, Note(code="capture-not-used", text=text)]
        return msgspec.structs.replace(observation, notes=notes)
    timeline = attach_operators(timeline, {1: capture}, None, {})
    device = timeline.device
    has_operator = device.graph if device.call is None else device.graph & (device.call >= 0)
    whole = float(device.duration_ns[device.graph].sum())
    share = float(device.duration_ns[has_operator].sum()) / whole if whole else 0.0
    notes = [note for note in observation.notes if note.code not in _ANSWERED]
    if share < 1:
        text = (
            f"--capture gives the operators of {units.share(share)} of the time of replayed "
            "kernels; for the rest it has no equal kernel with the same grid"
        )
        notes.append(Note(code="capture-differs", text=text))
    return msgspec.structs.replace(observation, timeline=timeline, notes=notes)
