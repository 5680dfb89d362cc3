"""The saving of computing all iterations of a loop at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from boundby.model import Cost, Phase
from boundby.step.edit import Edit, HostTime
from boundby.step.loop import Loop
from boundby.step.model import StepView
from boundby.step.recurrences import forward_row, is_chain
from boundby.step.rows import share_between

_TAKES_OUT = (
    "aten::select",
    "aten::slice",
    "aten::narrow",
    "aten::index",
    "aten::index_select",
    "aten::masked_select",
    "aten::gather",
    "aten::embedding",
)


def together(
    step: StepView,
    loops: Iterable[Loop],
    *,
    left: float,
    for_nothing: bool = False,
    one_pass: bool = False,
) -> Edit:
    """Each call is made once for all iterations; the share `left` of the gain is lost.

    Calls that need the result of the iteration before stay. `one_pass`: all calls of a line become
    one operator, which takes as long as the longest of them.
    """
    loops = list(loops)
    times: dict[int, float] = {}
    removed: list[int] = []
    for loop in loops:
        chained = {index for group in loop.chained for index in group}
        calls = loop.calls if loop.is_uniform else (loop.records,)
        if one_pass:
            calls = tuple(_by_name(step, loop))
        calls = tuple(group for group in calls if group[0] not in chained)
        at_once = [
            0.0 if for_nothing else min(total_ns(step, group), at_once_ns(step, group))
            for group in calls
        ]
        longest = max(at_once, default=0.0)
        for group, ns in zip(calls, at_once, strict=True):
            first, *others = group
            remaining_ns = ns * longest / sum(at_once) if one_pass and ns else ns
            times[first] = remaining_ns + left * (total_ns(step, group) - remaining_ns)
            times.update(dict.fromkeys(others, 0.0))
            removed += others
    if step.device != "cpu":
        return Edit.set_time(times) + Edit.scale_launches(removed, left)
    saved = (1 - left) * _python_of_loops(step, loops)
    return Edit.set_time(times) + Edit.save_host(HostTime(after_ns=saved))


def _python_of_loops(step: StepView, loops: Sequence[Loop]) -> float:
    """Time between the operators of loops: at their own lines, and at other lines of their bodies
    while they run."""
    python = {row.where: row.parts.get("python", 0.0) for row in step.line_rows}
    shares: dict[str, float] = defaultdict(float)
    for loop in loops:
        for line, part in share_between(step, *loop.spans).items():
            is_loop_line = line == loop.line or line in loop.lines
            shares[line] = max(
                shares[line], loop.independent_share * (1.0 if is_loop_line else part)
            )
        for line in (loop.line, *loop.lines):
            shares[line] = max(shares[line], loop.independent_share)
    return step.cpu_contention * sum(
        python.get(line, 0.0) * share for line, share in shares.items()
    )


def _by_name(step: StepView, loop: Loop) -> Iterable[tuple[int, ...]]:
    """The operators of a loop, grouped by phase and name."""
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index in loop.records:
        groups[step.op_records[index].phase, step.op_records[index].name].append(index)
    return map(tuple, groups.values())


def total_ns(step: StepView, same: Iterable[int]) -> float:
    return sum(step.op_records[index].ns for index in same)


def _taken_from(step: StepView, index: int) -> int | None:
    """If an operator belongs to the backward of taking a part out of a tensor, that tensor's
    storage (0 if unknown)."""
    record = step.op_records[index]
    host, forward = step.timeline.host, forward_row(step, record)
    if record.phase != Phase.BACKWARD or forward == record.row:
        return None
    if step.timeline.names[host.name[forward]] not in _TAKES_OUT or host.call[forward] < 0:
        return None
    tensors = step.timeline.calls[host.call[forward]].tensors
    return (tensors[0].storage or 0) if tensors else 0


def at_once_ns(step: StepView, same: tuple[int, ...]) -> float:
    """The time of one call for all iterations, by the machine's curves; products that each need the
    result of the one before are unchanged."""
    if step.op_records[same[0]].op_class == "contraction" and is_chain(step, same):
        return total_ns(step, same)
    if _taken_from(step, same[0]) is not None:
        # Each made a gradient of the whole tensor, zero but for one part.
        same = same[: len({_taken_from(step, index) for index in same})]
    machine, costs = step.machine, [step.op_records[index].cost or Cost() for index in same]
    moved = machine.copy_ns(sum(cost.bytes for cost in costs)) or 0.0
    flops: dict[str, float] = defaultdict(float)
    for cost in costs:
        for unit, count in cost.flops.items():
            flops[unit] += count
    products = (machine.product_ns(unit, count) for unit, count in flops.items())
    return max(moved, *(ns or 0.0 for ns in products), 0.0)
