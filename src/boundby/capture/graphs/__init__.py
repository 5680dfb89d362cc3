"""Operators that were seen while a CUDA graph was captured, put to the kernels it replays."""

from boundby.capture.graphs.alignment import Alignment, align
from boundby.capture.graphs.recording import Operator, Recording, parse, read
from boundby.capture.graphs.replays import recall

__all__ = ["Alignment", "Operator", "Recording", "align", "parse", "read", "recall"]
