"""Torch profiler trace files (Kineto's chrome-trace JSON, plain or gzip) into timelines.

    trace = kineto.read("rank0.json.gz")
    timeline = trace.timeline()  # the median step

`stream` reads bytes, `decode` events, `columns` numpy rows of them; `steps` divides the rows into
steps, `nesting` and `origins` link them, `assembly` makes the Timeline. `survey` looks through
files too large to hold.
"""

from boundby.capture.kineto.metadata import Device, Metadata
from boundby.capture.kineto.steps import Step, StepsFrom
from boundby.capture.kineto.trace import Trace, read

__all__ = ["Device", "Metadata", "Step", "StepsFrom", "Trace", "read"]
