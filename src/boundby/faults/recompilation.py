"""Compiled code is compiled again during training, or is split by graph breaks.

What it looks for
    Steps after the warm-up in which `torch.compile` built another graph, from the compiler's own
    counters; functions that reached the limit of recompilations, with the guard that failed.
    Functions that were resumed after a graph break, with the line of the break and its reason.

Why it costs time
    A shape, a flag or a number that differs from the compiled one triggers a compilation, which
    takes seconds. A graph break ends one compiled region and starts another: each region checks its
    guards, nothing is fused across the break, and the code between the regions runs eagerly.

What to change
    Pad batches to a few lengths, or use `torch.compile(model, dynamic=True)` or
    `torch._dynamo.mark_dynamic(x, 0)`. `TORCH_LOGS=recompiles` prints the guard that failed. For
    graph breaks, move code that the compiler cannot trace (`.item()`, `print`, a branch on a value)
    out of the compiled function; `fullgraph=True` turns breaks into errors.

When it does not help
    When each shape is compiled once and then recurs: use a longer warm-up. When the regions are
    large and few, breaks cost little.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import HostKind, units
from boundby.model.assumptions.host import COMPILED_CALL_NS
from boundby.model.assumptions.savings import BREAK_CALLS, COMPILED_PYTHON_SHARE
from boundby.model.estimate import Estimate
from boundby.step.model import StepView
from boundby.step.pauses import shares

_RESUMED = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): torch_dynamo_resume_in_")
_REGION = re.compile(r"^Torch-Compiled Region: (?P<frame>\d+)/")
_AGAIN = "model = torch.compile(model, dynamic=True)  # or pad to a few shapes"


def detect(step: StepView) -> Detection | None:
    seen = step.host_counters
    breaks, count = _breaks(step)
    gave_up = seen.gave_up_compiling
    if not any(seen.compiler_ns) and not count and not gave_up:
        return None
    low, expected, high = shares(seen.compiler_ns, seen.steps_ns)
    lost_ns = step.base_ns * step.stall_sensitivity(max(seen.compiler_ns, default=0.0))
    each = step.machine.overheads.compiled_call_ns or COMPILED_CALL_NS.value
    calls = each * count * step.stall_sensitivity(each)
    eager_ns = step.account.overhead.parts.get("python", 0.0) if gave_up else 0.0
    eager_ns *= step.cpu_contention
    return Detection.of_saving(
        Estimate(
            low=lost_ns * low + BREAK_CALLS.low * calls,
            expected=lost_ns * expected
            + BREAK_CALLS.value * calls
            + COMPILED_PYTHON_SHARE.value * eager_ns,
            high=lost_ns * high + BREAK_CALLS.high * calls + eager_ns,
        ),
        where=_where(step, breaks),
        change=_AGAIN
        if any(seen.compiler_ns) or seen.compiled_again
        else "model = torch.compile(model, fullgraph=True)  # and fix what it names",
        assumes=_assumes(step, count),
        evidence="; ".join(_reasons(step)),
    )


def _where(step: StepView, resumed: list[str]) -> list[str]:
    """The compiled functions, what is compiled again, and where the graph breaks."""
    seen = step.host_counters
    breaks = [line for line, _ in seen.graph_break_lines] or resumed
    again: list[str] = []
    if any(seen.compiler_ns) or seen.compiled_again:
        again = [*step.evidence.settings.compiled_at[:2]]
        again += [one.where for one in seen.compiled_again[:2]]
    return list(dict.fromkeys([*again, *breaks[:3]]))


def _reasons(step: StepView) -> Iterator[str]:
    """The reasons, as the compiler states them."""
    seen = step.host_counters
    for one in seen.compiled_again[:2] if any(seen.compiler_ns) or seen.gave_up_compiling else ():
        why = f": {one.reason}" if one.reason else ""
        yield f"{one.where} was compiled {one.times} times{why}"
    if seen.gave_up_compiling:
        yield "the compiler gave up on a function, which has run uncompiled since"
    for line, reason in seen.graph_break_lines[:3]:
        yield f"graph break at {line}: {reason}"


def _breaks(step: StepView) -> tuple[list[str], int]:
    """The lines of graph breaks, and how often a step resumes after a break."""
    timeline = step.timeline
    host = timeline.host
    resumed = [_RESUMED.match(name) for name in timeline.names]
    after_break = np.array([found is not None for found in resumed] or [False])
    rows = after_break[host.name] & (host.kind == HostKind.PYTHON)
    lines: dict[str, int] = {}
    for name, count in zip(*np.unique(host.name[rows], return_counts=True), strict=True):
        found = resumed[name]
        assert found is not None
        line = f"{found['file']}:{found['line']}"
        lines[line] = lines.get(line, 0) + int(count)
    if lines:
        return sorted(lines, key=lambda line: -lines[line]), sum(lines.values())
    if not step.host_counters.graph_breaks:
        # Several compiled functions in a step are no fault: only the compiler reports breaks.
        return [], 0
    named = (_REGION.match(timeline.names[name]) for name in np.unique(host.name))
    frames = {found["frame"] for found in named if found}
    return [], max(0, len(frames) - 1)


def _assumes(step: StepView, breaks: int) -> str:
    seen = step.host_counters
    words = []
    if any(seen.compiler_ns):
        compiling = sum(ns > 0 for ns in seen.compiler_ns)
        words.append(
            f"later steps are like these, {compiling} of {len(seen.compiler_ns)} of which compiled "
            f"for {units.time(sum(seen.compiler_ns) / compiling)} each"
        )
    if seen.gave_up_compiling:
        words.append(
            "compiled code issues its operators in less time, which depends on the backend"
        )
    if breaks:
        known = seen.graph_breaks if not seen.graph_break_lines else ()
        reasons = f" ({'; '.join(known[:2])})" if known else ""
        words.append(f"the {breaks} breaks in a step can be avoided{reasons}")
    return ", and ".join(words)


FAULT = Fault(
    id="recompilation",
    title="torch.compile compiles again, or in pieces",
    kind="mistake",
    group="overhead",
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
