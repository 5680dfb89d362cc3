"""The device waits for the host to launch the next kernel.

What it looks for
    Kernels that start as soon as they are launched, and idle time of the device between them while
    Python and the framework prepare the next launch.

Why it costs time
    An eager operator costs the host some microseconds, however small it is. If the kernels are
    shorter than that, the device executes faster than the host issues.

What to change
    Capture the step once and replay it: `torch.cuda.make_graphed_callables(model, ...)`, or
    `torch.cuda.CUDAGraph` around the whole step. The kernels stay the same; this is what the
    prediction simulates. `torch.compile(model, mode="reduce-overhead")` is easier to add and also
    fuses kernels, but entering it costs more host time: on an H200's host a step of 27 ms took 20
    to 22 ms with it, where 17 ms were predicted for graphs alone and 20 ms for graphs and fusion
    together. Plain `torch.compile` helps less: its kernels cost about as much to launch, only fewer
    are launched.

When it does not help
    When the device limits the step. When shapes change between steps, the step syncs, or it
    branches on values: such a step cannot be captured.

Measured on
    BERT (12 layers) on an H200, with fused attention and optimizer: 52.5 to 20.1 ms per step on a
    slow host; predicted 20.0 ms.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import compiled, cuda_graphs
from boundby.model import DeviceKind, Phase
from boundby.model.assumptions.device import GRAPH_GAP_NS
from boundby.model.assumptions.savings import (
    GRAPH_HOST_LEFT,
    GRAPH_LONGEST_GAP_NS,
    GRAPH_PIECES_LEFT,
)
from boundby.step.inference import is_inference
from boundby.step.model import Edit, HostTime, StepView
from boundby.step.simulator import LaunchSequence
from boundby.step.user_python import host_time_outside_model

_CHANGE = """model = torch.cuda.make_graphed_callables(model, (sample_input,))
# or, with its operators fused too: torch.compile(model, mode="reduce-overhead")"""

_OF_INFERENCE = """model = torch.compile(model, mode="reduce-overhead")
# generation: with a static KV cache; a serving engine: with its CUDA graphs on"""


def detect(step: StepView) -> Detection | None:
    launches = step.launches
    if step.timeline.device.graph.mean() > 0.5 or _launched_together(launches):
        return None
    if any(note.code == "graph-captured" for note in step.timeline.notes):
        return None
    # Forward and backward are captured; the optimizer is launched as before, unless it is captured
    # too.
    captured = launches.phase != Phase.OPTIMIZER
    gap = _graph_gap(step)
    change = _OF_INFERENCE if is_inference(step) else _CHANGE
    longest = GRAPH_LONGEST_GAP_NS
    everything = np.ones(len(captured), np.bool_)
    syncs = _syncs_inside(launches)
    if syncs:
        times = "once" if syncs == 1 else f"{syncs} times"
        return Detection(
            low=Edit(),
            expected=_left(step, captured, GRAPH_PIECES_LEFT.value, launches.gap_ns, longest.value),
            high=_left(step, captured, GRAPH_HOST_LEFT.value, gap, longest.high),
            where=[],
            change=change,
            assumes=f"shapes stay the same; the step syncs {times} in the middle, which a graph "
            "cannot contain: remove that first",
        )
    return Detection(
        low=_left(step, captured, GRAPH_HOST_LEFT.high, launches.gap_ns, longest.low),
        expected=_left(step, captured, GRAPH_HOST_LEFT.value, gap, longest.value),
        high=_left(step, everything, GRAPH_HOST_LEFT.low, min(0.0, gap), longest.high),
        where=[],
        change=change,
        assumes="shapes stay the same, and nothing inside the step syncs",
    )


def _launched_together(launches: LaunchSequence) -> bool:
    """Whether most kernels share their launch, or it was not recorded."""
    issued = np.diff(launches.first)
    return bool(issued[issued > 1].sum() > 0.5 * len(launches.device_ns))


def _syncs_inside(launches: LaunchSequence) -> int:
    """How often the host waits between the first and the last launch of forward and backward."""
    launching = np.flatnonzero((launches.phase != Phase.OPTIMIZER) & (np.diff(launches.first) > 0))
    if not len(launching):
        return 0
    return int((launches.wait[launching[0] : launching[-1]] != 0).sum())


def _left(
    step: StepView,
    captured: np.ndarray[tuple[int], np.dtype[np.bool_]],
    left: float,
    gap_ns: float,
    longest_ns: float,
) -> Edit:
    """The step with captured launches, beside which a share of the host's time is left."""
    launches, stays = step.launches, host_time_outside_model(step)
    before_ns = np.minimum(launches.host_ns - stays.before_ns, longest_ns)
    after_ns = min(launches.after_ns - stays.after_ns, longest_ns)
    saved = HostTime(
        before_ns=np.where(captured, before_ns * (1 - left), 0.0), after_ns=after_ns * (1 - left)
    )
    return Edit.capture_graph(saved, gap_ns=gap_ns)


def _graph_gap(step: StepView) -> float:
    """The gap between kernels of a graph: at most that between kernels launched one by one.

    Memsets before some products and sums gain nothing: on an H200 such a pair took as long in a
    graph (0.9 us between the two, 1.5 us less between others).
    """
    launches = step.launches
    sets = step.timeline.device.kind[launches.order] == DeviceKind.MEMSET
    as_before = sets | np.concatenate([[False], sets[:-1]])
    kernels_ns = launches.device_ns[~as_before & (launches.device_ns > 0)]
    measured = step.machine.overheads.gap_ns(kernels_ns, graphed=True)
    gap = min(launches.gap_ns, GRAPH_GAP_NS.value if measured is None else measured)
    return gap + float(as_before.mean()) * (launches.gap_ns - gap)


FAULT = Fault(
    id="eager-launches",
    title="Device waits for kernel launches",
    kind="tuning",
    group="overhead",
    devices=("cuda",),
    stage=Stage.LAUNCHES,
    document=__doc__,
    detect=detect,
    fixes=(
        compiled.REDUCE_OVERHEAD,
        compiled.COMPILE,
        cuda_graphs.CUDA_GRAPHS,
        compiled.MAX_AUTOTUNE,
    ),
)
