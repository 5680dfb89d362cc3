"""The optimizer updates its parameters in many passes over memory.

What it sees
    An optimizer step made of single operators per parameter, or of `_foreach` operators: each
    reads and writes all parameters once more.

Why it costs time
    AdamW reads the parameter, its gradient and two moments and writes three of them: 28 bytes a
    parameter in float32, once. Done operator by operator the same bytes go through memory several
    times, and per parameter there are about eight launches for the host to issue.

The change
    `torch.optim.AdamW(parameters, fused=True)`.

When it does not help
    When the step is limited by something that happens while the optimizer does not; with an
    optimizer that has no fused form.

Proven on
    Not yet.
"""

from __future__ import annotations

import numpy as np

from boundby.account.work import Work
from boundby.model import DTYPE_BYTES, Phase, Tensor
from boundby.picture import Change, Picture
from boundby.remedies.remedy import Imagined, Remedy

# Read and write parameter and both moments, read the gradient: seven passes.
_PASSES = 7
# Of the memory roof, as fused kernels over many tensors were seen to reach on an H200: 2.8 to 3.8
# of 4.7 TB/s.
_WORST, _EXPECTED, _BEST = 0.60, 0.72, 0.81
# A fused step issues a handful of launches.
_LAUNCHES = 6
_ADAM = ("addcdiv", "addcmul")
_FEWEST_PARAMETERS = 1_000


def imagine(picture: Picture) -> Imagined | None:
    mine = [
        (index, work)
        for index, work in enumerate(picture.works)
        if work.phase == Phase.OPTIMIZER and work.bound in ("memory", "small")
    ]
    if not mine or any("_fused_" in work.name for _, work in mine):
        return None
    if not all(any(part in work.name for _, work in mine) for part in _ADAM):
        return None
    updated = _updated_bytes(picture, [work for _, work in mine])
    memory = picture.machine.rate("memory.dram")
    if updated < _FEWEST_PARAMETERS * 4 or memory is None:
        return None
    ns = _PASSES * updated / memory * 1e9
    return Imagined(
        worst=_fused(picture, mine, ns / _WORST),
        expected=_fused(picture, mine, ns / _EXPECTED),
        best=_fused(picture, mine, ns / _BEST),
        where=picture.lines(work for _, work in mine)[:1],
        change="torch.optim.AdamW(..., fused=True)  # or Adam: pass fused=True",
        assumes="the optimizer is Adam or AdamW, its states in the parameters' dtype",
    )


def _updated_bytes(picture: Picture, works: list[Work]) -> float:
    """The size of all parameters that the step updates: those of its last update, addcdiv."""
    total = 0.0
    for work in works:
        call = picture.call(work)
        if call is None or "addcdiv" not in work.name or not call.args:
            continue
        target = call.args[0]
        for tensor in target if isinstance(target, tuple) else (target,):
            if isinstance(tensor, Tensor):
                total += tensor.elements * DTYPE_BYTES.get(tensor.dtype, 4)
    return total


def _fused(picture: Picture, mine: list[tuple[int, Work]], ns: float) -> Change:
    """All of the optimizer's kernels together take `ns`, and the host issues a few launches."""
    before = sum(work.ns for _, work in mine)
    work_ns = {index: work.ns / before * min(ns, before) for index, work in mine}
    script = picture.script
    eager = picture.machine.overheads.eager_op_ns or 0.0
    if script is None:
        return Change(work_ns=work_ns, python_ns=max(0.0, (len(mine) - _LAUNCHES) * eager))
    actions = picture.actions_of(index for index, _ in mine)
    host = script.host_ns.copy()
    spent = host[actions].sum()
    if len(actions):
        host[actions] *= min(1.0, _LAUNCHES * eager / spent) if spent else 1.0
    # Work in a fused kernel has no gaps inside: what they cost is taken off the kernels.
    gaps = script.gap_ns * max(0, len(mine) - _LAUNCHES)
    shrink = max(0.0, 1 - gaps / max(ns, 1.0)) if gaps < ns else 0.05
    work_ns = {index: value * shrink for index, value in work_ns.items()}
    return Change(work_ns=work_ns, host_ns=np.asarray(host))


REMEDY = Remedy(fault="unfused-optimizer", group="overhead", document=__doc__, imagine=imagine)
