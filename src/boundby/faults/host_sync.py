"""The host waits for the device in the middle of the step.

What it looks for
    Calls in which the host blocks until the device has finished, with their line: `.item()`,
    `.cpu()`, `nonzero`, indexing with a boolean mask, printing a tensor.

Why it costs time
    The host issues no work while it waits. When the device has finished, it is idle until the host
    has launched the next kernel. A step without syncs takes the longer of host time and device
    time; each sync adds parts of both.

What to change
    Keep values on the device: accumulate `loss.detach()` and call `.item()` every hundred steps.
    Use `torch.where` instead of a boolean mask. Read metrics of the previous step.

When it does not help
    When the device is far behind the host and the sync is the last operation of the step. When the
    host has nothing else to do. In both cases the simulated step shows no saving.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import HostKind
from boundby.step.inference import is_inference
from boundby.step.model import Edit, HostTime, StepView

_CHANGE = {
    "torch": "losses.append(loss.detach())  # and .item() once every hundred steps",
    "jax": "losses.append(loss)  # and float(loss) once every hundred steps",
}

_OF_INFERENCE = {
    "torch": 'outputs = outputs.to("cpu", non_blocking=True)  # into pinned memory; read them after'
    " the next step is issued",
    "jax": "outputs.copy_to_host_async()  # and np.asarray(outputs) after the next step is issued",
}


def detect(step: StepView) -> Detection | None:
    launches = step.launches
    # A CPU's programs may also block the host, in the call that runs them.
    kinds = np.append(step.timeline.host.kind, HostKind.OP)
    rows = launches.rows if len(launches.rows) else np.full(len(launches.wait), -1)
    waits = np.flatnonzero((launches.wait != 0) & (kinds[rows] == HostKind.SYNC))
    if not len(waits):
        return None
    calls = np.zeros(len(launches.wait))
    calls[waits] = step.machine.overheads.sync_ns or 0.0
    return Detection(
        # One sync per step remains if a loss is logged: at the end, where it costs least.
        low=Edit.drop_waits(waits[:-1]),
        expected=Edit.drop_waits(waits),
        high=Edit.drop_waits(waits)
        + Edit.save_host(HostTime(before_ns=np.minimum(calls, launches.host_ns))),
        where=_lines(step),
        change=(_OF_INFERENCE if is_inference(step) else _CHANGE)[step.framework],
        assumes="nothing in the step depends on the value",
    )


def _lines(step: StepView) -> list[str]:
    """The lines that wait, the longest wait first."""
    timeline = step.timeline
    host = timeline.host
    waited: dict[int, int] = {}
    for row in np.flatnonzero(host.kind == HostKind.SYNC):
        source = int(host.source[row])
        waited[source] = waited.get(source, 0) + int(host.duration_ns[row])
    ranked = sorted(waited, key=lambda source: -waited[source])
    return [timeline.sources[s] for s in ranked if 0 <= s < len(timeline.sources)]


FAULT = Fault(
    id="host-sync",
    title="Host waits for the device",
    kind="mistake",
    group="overhead",
    devices=("cuda",),
    stage=Stage.HOST,
    frameworks=("torch", "jax"),
    document=__doc__,
    detect=detect,
)
