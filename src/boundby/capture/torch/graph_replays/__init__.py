"""Assigns operators recorded while a CUDA graph was captured to the kernels of its replays."""

from boundby.capture.torch.graph_replays.alignment import Alignment, align
from boundby.capture.torch.graph_replays.recording import Operator, Recording, parse, read
from boundby.capture.torch.graph_replays.replays import attach_operators
from boundby.capture.torch.graph_replays.traced import recording_of

__all__ = [
    "Alignment",
    "Operator",
    "Recording",
    "align",
    "attach_operators",
    "parse",
    "read",
    "recording_of",
]
