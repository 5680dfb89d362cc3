"""Python functions of the step, chosen by their names, and the lines that led to them."""

from __future__ import annotations

import re

import numpy as np

from boundby.model import HostKind, Phase
from boundby.step.host_intervals import called_from
from boundby.step.model import StepView
from boundby.step.nesting import Mask, nearest
from boundby.step.rows import time_of_rows

_WRITES = re.compile(
    r"torch/serialization\.py\(\d+\): (?:save|_save|_legacy_save)\b"
    r"|(?:^|/)(?:json|pickle|joblib/\w+|yaml)(?:/__init__)?\.py\(\d+\): dump$"
    r"|<built-in (?:function|method) (?:fsync|fdatasync|write|writelines|writerow|writerows|flush"
    r"|tofile|dump)\b"
    r"|safetensors/torch\.py\(\d+\): save|(?:savefig|imwrite)\b"
    r"|\bnumpy/lib/\w*npyio\w*\.py\(\d+\): save|torchvision/utils\.py\(\d+\): save_image"
    r"|PIL/Image\.py\(\d+\): save$|pandas/.*: to_(?:csv|parquet|json|pickle|hdf|feather)$"
    r"|(?:^|/)shutil\.py\(\d+\): (?:copy|move)|<built-in method commit of sqlite3\."
    r"|torch/utils/tensorboard/writer\.py\(\d+\): (?:add_|flush)|wandb/.*: log$"
)
_LOADS = re.compile(
    r"torch/serialization\.py\(\d+\): load$|safetensors/torch\.py\(\d+\): load"
    r"|\bnumpy/lib/\w*npyio\w*\.py\(\d+\): load$"
)
# Functions of tensors only: numpy has functions of these names on arrays and scalars.
_READS = re.compile(
    r"^<built-in method (?:item|tolist|numpy|__float__|__int__) of (?!numpy\b|builtins\b)"
)
_READ_OPERATORS = ("aten::item", "aten::is_nonzero")
# Methods of tensors that are written in Python, such as `__contains__`, are the script's own reads.
_LIBRARY = re.compile(r"(?:^|/)torch/(?!_tensor\.py)")
# Lines with a smaller share of the step are not reported.
_COUNTS = 0.005


def frames_named(step: StepView, pattern: re.Pattern[str]) -> Mask:
    """Rows of the functions whose names match, except inside a loader's batch, which another fault
    covers."""
    host, names = step.timeline.host, step.timeline.names
    named = np.array([bool(pattern.search(name)) for name in names] or [False])
    loading = nearest(host.parent, host.kind == HostKind.DATA) >= 0
    chosen: Mask = (host.kind == HostKind.PYTHON) & named[host.name] & ~loading
    return chosen


def times_by_line(step: StepView, rows: Mask) -> dict[str, float]:
    """The time of rows, with all that they call, by the user's line that led to them; the longest
    first."""
    called = called_from(step.timeline.host)
    times = {
        step.timeline.sources[at]: time_of_rows(step, step.inside(rows & (called == at)))
        for at in np.unique(called[rows]).tolist()
        if at >= 0
    }
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def costly_lines(step: StepView, times: dict[str, float]) -> list[str]:
    """The lines with a considerable share of the step, the costliest first."""
    ranked = sorted(times, key=lambda line: -times[line])
    return [line for line in ranked if times[line] >= _COUNTS * step.wall_ns]


def file_writes(step: StepView) -> Mask:
    """Rows of functions that write files."""
    host, names = step.timeline.host, step.timeline.names
    named = np.array([bool(_WRITES.search(name)) for name in names] or [False])
    chosen: Mask = (host.kind == HostKind.PYTHON) & named[host.name]
    return chosen


def file_loads(step: StepView) -> Mask:
    """Rows of functions that read a file of tensors or arrays, outside of a loader."""
    return frames_named(step, _LOADS)


def reads_of_values(step: StepView) -> Mask:
    """Rows at which the script reads values of tensors, each once: no library, no loader."""
    host, timeline = step.timeline.host, step.timeline
    operators = np.array([name in _READ_OPERATORS for name in timeline.names] or [False])
    functions = np.array([bool(_READS.search(name)) for name in timeline.names] or [False])
    library = np.array([bool(_LIBRARY.search(name)) for name in timeline.names] or [False])
    is_read = ((host.kind == HostKind.OP) & operators[host.name]) | (
        (host.kind == HostKind.PYTHON) & functions[host.name]
    )
    # Reads inside a library are left out: clipping, distributions, an optimizer's step counter.
    inside: Mask = nearest(host.parent, (host.kind == HostKind.PYTHON) & library[host.name]) >= 0
    loads = nearest(host.parent, host.kind == HostKind.DATA) >= 0
    phases = (host.phase != Phase.OPTIMIZER) & (host.phase != Phase.BACKWARD)
    chosen: Mask = is_read & ~inside & ~loads & phases
    # The operator inside the function is the same read.
    around = np.append(nearest(host.parent, chosen), -1)[host.parent]
    return chosen & (around < 0)
