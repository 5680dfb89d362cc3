"""The host waits for the device in the middle of the step.

What it sees
    `.item()`, `.cpu()`, `nonzero`, a boolean mask, the print of a tensor: any call in which the
    host stands still until the device has caught up, with the line that makes it.

Why it costs time
    While the host waits it issues nothing. When the device is done it has nothing to do either,
    until the host has come back and launched again. A step without syncs takes the longer of host
    and device; each sync makes it take a piece of both.

The change
    Keep values on the device: accumulate `loss.detach()` and call `.item()` once in a while; use
    `torch.where` instead of a mask; read a metric of the step before.

When it does not help
    When the device is far behind anyway and the sync is the last thing in the step, or when the
    host has nothing else to do: the replay then shows no gain.

Proven on
    Not yet.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind
from boundby.step.model import Edit, StepModel
from boundby.step.simulator import Wait


def detect(step_model: StepModel) -> Detection | None:
    script = step_model.script
    if script is None or not script.wait.any():
        return None
    waits = np.flatnonzero(script.wait)
    none = np.zeros_like(script.wait)
    # One sync a step remains where a loss is logged: at the end, where it costs least.
    last = none.copy()
    last[waits[-1]] = Wait.STREAM
    host = script.host_ns.copy()
    sync = step_model.machine.overheads.sync_ns or 0.0
    host[waits] = np.clip(host[waits] - sync, 0.0, None)
    return Detection(
        worst=Edit(wait=last),
        expected=Edit(wait=none),
        best=Edit(wait=none, host_ns=host),
        where=_lines(step_model),
        change="losses.append(loss.detach())  # and .item() once every hundred steps",
        assumes="nothing in the step depends on the value",
    )


def _lines(step_model: StepModel) -> list[str]:
    """The lines that wait, the longest wait first."""
    timeline = step_model.timeline
    host = timeline.host
    waited: dict[int, int] = {}
    for row in np.flatnonzero(host.kind == HostKind.SYNC):
        source = int(host.source[row])
        waited[source] = waited.get(source, 0) + int(host.duration_ns[row])
    ranked = sorted(waited, key=lambda source: -waited[source])
    return [timeline.sources[s] for s in ranked if 0 <= s < len(timeline.sources)]


FAULT = Fault(fault="host-sync", group="overhead", document=__doc__, detect=detect)
