"""A Python loop goes over the parameters one by one.

What it looks for
    Lines of the script, outside of the model and the optimizer, at which the same operators run
    once for each of many parameters or gradients: averages of weights, clipping, norms, updates by
    hand. `state_dict()` and `load_state_dict()` beside such a loop belong to it.

Why it costs time
    Each parameter costs a dispatch for every operator, and Python in between. On a GPU each is a
    small kernel; a value read of each makes the host wait.

What to change
    `torch._foreach_lerp_(average, parameters, 1 - decay)`, `torch._foreach_mul_`,
    `torch.nn.utils.clip_grad_norm_`, `torch.nn.utils.get_total_norm`, or an optimizer with
    `fused=True`.

When it does not help
    With few large parameters, whose memory traffic decides.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.model.assumptions.host import OPERATOR_NS
from boundby.model.assumptions.program_savings import LOOPED_UPDATES_LEFT
from boundby.model.rows import NO_LINE
from boundby.step.frames import file_writes, frames_named, reads_of_values
from boundby.step.host_intervals import called_from
from boundby.step.loop import Loop
from boundby.step.loop_savings import together
from boundby.step.loops import looping_lines
from boundby.step.model import Edit, StepView
from boundby.step.nesting import Mask
from boundby.step.rows import without_rows

_FEWEST = 6  # fewer are not reported
_STATE = re.compile(r"(?:^|/)torch/nn/modules/module\.py\(\d+\): (?:state_dict|load_state_dict)$")
_COPIES = re.compile(r"(?:^|/)copy\.py\(\d+\): deepcopy$")
# Calls for the state within this many lines of a loop over parameters belong to it.
_NEAR = 4


def detect(step: StepView) -> Detection | None:
    loops, updates = step.memoised(_loops)
    if not loops:
        return None
    reads = [loop for loop in loops if loop not in updates]
    # On a CPU such an operator still calls another for each tensor.
    asking = step.machine.overheads.eager_op_ns or OPERATOR_NS.value
    each = [Edit.add_host(loop.records[:1], loop.rounds * asking) for loop in updates]
    state = without_rows(step, state_of_loops(step))
    # Norms and checks that the script reads one by one are not needed in every step.
    at_once = together(step, updates, left=0.0, one_pass=True) + state
    at_once += together(step, reads, left=0.0, for_nothing=True)
    return Detection(
        low=together(step, loops, left=LOOPED_UPDATES_LEFT.high),
        expected=sum(each, at_once) if step.device == "cpu" else at_once,
        high=at_once,
        where=[loop.line for loop in loops if loop.line != NO_LINE][:4],
        change="torch._foreach_mul_(averages, decay)  # and so on: one call for all parameters"
        if updates
        else "if step % 100 == 0: ...  # or torch._foreach_norm(gradients), and one read of all",
        assumes="no parameter's update depends on another's",
    )


def _loops(step: StepView) -> tuple[list[Loop], list[Loop]]:
    """All loops over parameters, and those that do not read a value of each."""
    loops = [loop for loop in looping_lines(step, _FEWEST) if _is_over_parameters(step, loop)]
    return loops, [loop for loop in loops if not _reads_each(step, loop)]


def _is_over_parameters(step: StepView, loop: Loop) -> bool:
    """Whether the same operators run on tensors of several shapes that parameters have."""
    parameters = step.memoised(_parameter_shapes)
    shapes: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    storages: dict[str, set[int | None]] = defaultdict(set)
    for index in loop.records:
        record = step.op_records[index]
        call = step.call(record)
        if call is None or not call.tensors or record.phase == Phase.BACKWARD:
            continue
        # A product takes a parameter as its weight: these are layers, which a model runs one after
        # the other.
        if record.op_class == "contraction" or record.module >= 0:
            continue
        largest = max(call.tensors, key=lambda tensor: tensor.elements)
        if largest.shape in parameters:
            shapes[record.name].append(largest.shape)
            storages[record.name].add(largest.storage)
    return any(
        len(seen) >= _FEWEST and len(storages[name]) >= _FEWEST and len(set(seen)) > 1
        for name, seen in shapes.items()
    )


def _reads_each(step: StepView, loop: Loop) -> bool:
    """Whether the script reads a value in most rounds of a loop."""
    lines = {loop.line, *loop.lines}
    called, sources = called_from(step.timeline.host), step.timeline.sources
    at = called[np.flatnonzero(reads_of_values(step))]
    read = sum(sources[source] in lines for source in at.tolist() if source >= 0)
    return read > loop.rounds // 2


def state_of_loops(step: StepView) -> Mask:
    """Rows of the state's dictionaries that a line near a loop that updates parameters asks for,
    before or after the loop: within it, they are a part of its Python."""
    _, loops = step.memoised(_loops)
    near = {
        (file, int(line) + off)
        for file, _, line in (loop.line.rpartition(":") for loop in loops if loop.line != NO_LINE)
        for off in range(-_NEAR, _NEAR + 1)
    }
    sources = [one.rpartition(":") for one in step.timeline.sources]
    wanted = [
        at for at, (file, _, n) in enumerate(sources) if n.isdigit() and (file, int(n)) in near
    ]
    host = step.timeline.host
    rows = frames_named(step, _STATE) | _copies_for(step, loops)
    rows &= np.isin(called_from(host), wanted)
    for loop in loops:
        rows &= (host.start_ns < loop.spans[0]) | (host.start_ns >= loop.spans[1])
    return step.inside(rows) & ~step.inside(file_writes(step))


def _copies_for(step: StepView, loops: list[Loop]) -> Mask:
    """Copies of state that a loop over parameters reads: without the loop they are not needed."""
    flow, copies = step.flow, frames_named(step, _COPIES)
    if flow is None or not copies.any():
        return np.zeros_like(copies)
    inside = step.inside(copies)
    copied = {i for i, op in enumerate(step.op_records) if op.row >= 0 and inside[op.row]}
    read = {maker for loop in loops for index in loop.records for maker in flow.makers[index]}
    return copies if copied & read else np.zeros_like(copies)


def _parameter_shapes(step: StepView) -> set[tuple[int, ...]]:
    """The shapes in the optimizer, or in the backward's accumulation."""
    found: set[tuple[int, ...]] = set()
    for record in step.op_records:
        call = step.call(record)
        if call is not None and record.phase == Phase.OPTIMIZER:
            # A parameter may have one element; scalars without dimensions are counters.
            found |= {tensor.shape for tensor in call.tensors if tensor.shape}
    return found


FAULT = Fault(
    id="looped-parameters",
    title="Loop over the parameters",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    yields_to=("files-in-step",),
)
