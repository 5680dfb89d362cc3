"""The model is divided among devices by DataParallel.

What it looks for
    Calls of `torch.nn.DataParallel` that copy the model to several devices.

Why it costs time
    One Python process copies all weights to every device in each step, issues the operators of all
    devices from threads that share one interpreter, and gathers outputs and gradients on the first
    device.

What to change
    `torch.nn.parallel.DistributedDataParallel` with one process for each device:
    `torchrun --nproc-per-node=N train.py`.

When it does not help
    When the computation takes so long that the copies do not matter.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import re

from boundby.faults.fault import Detection, Fault
from boundby.step.frames import frames_named, times_by_line
from boundby.step.model import Edit, StepView
from boundby.step.rows import without_rows

_CALL = re.compile(
    r"torch/nn/parallel/data_parallel\.py\(\d+\): forward|^nn\.Module: DataParallel_"
)
_COPIES = re.compile(
    r"torch/nn/parallel/(?:replicate|scatter_gather|comm|_functions)\.py"
    r"|torch/nn/parallel/data_parallel\.py\(\d+\): (?:replicate|scatter|gather)"
)


def detect(step: StepView) -> Detection | None:
    calls, copies = frames_named(step, _CALL), frames_named(step, _COPIES)
    # With one device it calls the module and copies nothing.
    if not calls.any() or not copies.any():
        return None
    rows = step.inside(copies)
    return Detection(
        low=Edit(),
        expected=without_rows(step, rows),
        high=without_rows(step, step.inside(calls), 0.5) + without_rows(step, rows),
        where=list(times_by_line(step, calls))[:2],
        change="model = torch.nn.parallel.DistributedDataParallel(model)  # torchrun "
        "--nproc-per-node=N",
        assumes="each device gets its own process, and gradients are exchanged during the backward",
    )


FAULT = Fault(
    id="data-parallel",
    title="DataParallel copies the model in every step",
    kind="mistake",
    group="overhead",
    document=__doc__,
    devices=("cuda",),
    detect=detect,
)
