"""The optimizer updates its parameters in many passes over memory.

What it looks for
    An optimizer step that consists of single operators per parameter, or of `_foreach` operators.
    Each operator reads and writes all parameters again.

Why it costs time
    AdamW has to read the parameter, its gradient and two moments and write three of them: 28 bytes
    per parameter in float32; SGD with momentum and Adagrad 20 bytes, plain SGD 12. With separate
    operators the same bytes move several times, and the host issues up to eight launches per
    parameter tensor.

What to change
    Pass `fused=True`: `torch.optim.AdamW(parameters, fused=True)`, or `Adam`, `SGD`, `Adagrad`.
    The finding names the optimizer of the script.

When it does not help
    When something that overlaps with the optimizer limits the step. With an optimizer that has no
    fused implementation.

Measured on
    BERT (12 layers, 184 M parameters) on an H200: 35.5 to 33.0 ms per step; predicted 33.1 ms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from boundby.faults.fault import Detection, Fault
from boundby.fixes import optimizers
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import DTYPE_BYTES, Phase, Tensor
from boundby.model.assumptions.device import FUSED_OPTIMIZER_MEMORY_SHARE
from boundby.model.assumptions.savings import (
    FUSED_OPTIMIZER_LAUNCHES,
    OPTIMIZER_CPU_LEFT,
    OPTIMIZER_HOST_LEFT,
)
from boundby.model.machine import UPDATE
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord

_MARK = re.compile(r"Optimizer\.step#(\w+)\.step")
# torch's optimizers: those with a fused form, and those without.
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_NEVER_FUSED = ("Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "RMSprop", "SparseAdam")
_FEWEST_PARAMETERS = 1_000  # assumed: smaller updates take no time worth saving


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How an optimizer updates.

    `passes`: how often its fused form reads or writes a tensor as large as the parameters: the
    gradient once, the parameter and each of its states twice.
    """

    operators: tuple[str, ...]  # parts of names that all occur in it
    passes: int
    benchmark: str
    options: tuple[bool, ...] = ()


_ADAM = _Rule(operators=("addcdiv", "addcmul"), passes=7, benchmark="adamw")
_ADAGRAD = _Rule(operators=("addcdiv", "addcmul"), passes=5, benchmark="adagrad")
_SGD = _Rule(operators=("add_",), passes=3, benchmark="sgd", options=(False,))
_MOMENTUM = _Rule(operators=("mul_", "add_"), passes=5, benchmark="sgd", options=(True,))


def detect(step: StepView) -> Detection | None:
    updates = [
        (index, record)
        for index, record in enumerate(step.op_records)
        if record.phase == Phase.OPTIMIZER and record.bound in ("memory", "small")
    ]
    if not updates or any("_fused_" in record.name for _, record in updates):
        return None
    known = class_of(step)
    if known in _NEVER_FUSED:
        return None
    records = [record for _, record in updates]
    rule = next((one for one in _rules(known) if _follows(records, one)), None)
    if rule is None:
        return None
    name = f"torch.optim.{known}" if known in _FUSED else known
    updated = _updated(step, records, rule)
    size = sum(tensor.elements * DTYPE_BYTES.get(tensor.dtype, 4) for tensor in updated)
    rate = step.machine.rate
    memory = rate(f"memory.dram.{UPDATE}") or rate("memory.dram")
    if size < _FEWEST_PARAMETERS * 4 or memory is None:
        return None
    ns = rule.passes * size / memory * 1e9
    slow, middle, fast = (
        ns / FUSED_OPTIMIZER_MEMORY_SHARE.low,
        ns / FUSED_OPTIMIZER_MEMORY_SHARE.value,
        ns / FUSED_OPTIMIZER_MEMORY_SHARE.high,
    )
    timed = step.timings.ns(OpBenchmark(name=rule.benchmark, args=(updated, *rule.options)))
    if timed is not None:
        slow, middle, fast = max(slow, timed), timed, min(fast, timed)
    return Detection(
        low=_fused(step, updates, slow),
        expected=_fused(step, updates, middle),
        high=_fused(step, updates, fast),
        where=_lines(step, records),
        change=f"{name or 'torch.optim.AdamW'}(..., fused=True)"
        + ("" if name else "  # or Adam: whichever it is"),
        assumes="its states are in the parameters' dtype"
        if name
        else "the optimizer is Adam or AdamW, its states in the parameters' dtype",
    )


def _lines(step: StepView, records: list[OpRecord]) -> list[str]:
    """The lines that step the optimizer; also the one that makes it, where the change goes."""
    made_at = step.evidence.settings.optimizers_made_at
    return [*step.lines(records)[:2], *(made_at if len(made_at) == 1 else ())]


def class_of(step: StepView) -> str | None:
    """The optimizer's class as the framework marks its steps: `Optimizer.step#AdamW.step`."""
    marks = (_MARK.search(name) for name in step.timeline.names)
    names = dict.fromkeys(found[1] for found in marks if found)
    return next(iter(names)) if len(names) == 1 else None


def _rules(known: str | None) -> tuple[_Rule, ...]:
    """The ways in which an optimizer of this class may update; the first that fits counts."""
    by_class = {"Adagrad": (_ADAGRAD,), "SGD": (_MOMENTUM, _SGD)}
    # A user's own class may be an Adam; operators of SGD alone occur in any optimizer.
    return by_class.get(known or "", (_ADAM,))


def _follows(op_records: list[OpRecord], rule: _Rule) -> bool:
    return all(any(part in record.name for record in op_records) for part in rule.operators)


def _updated(step: StepView, op_records: list[OpRecord], rule: _Rule) -> tuple[Tensor, ...]:
    """The parameters that the step updates: those of its last operation.

    That is addcdiv; in SGD an in-place addition, where the one after an in-place product updates
    the momentum.
    """
    is_sgd = rule.benchmark == "sgd"
    last = "add_" if is_sgd else "addcdiv"
    found: list[Tensor] = []
    before = ""
    for record in op_records:
        name, previous, before = record.name, before, record.name
        call = step.call(record)
        if call is None or not name.endswith((last, f"{last}_")) or not call.args:
            continue
        if is_sgd and previous.endswith("mul_"):
            continue
        target = call.args[0]
        found += [
            Tensor(shape=tensor.shape, dtype=tensor.dtype)
            for tensor in (target if isinstance(target, tuple) else (target,))
            if isinstance(tensor, Tensor)
        ]
    return tuple(found)


def _fused(step: StepView, updates: list[tuple[int, OpRecord]], ns: float) -> Edit:
    """The edit: a few kernels take all of the optimizer's time, and the host issues only those."""
    before = sum(record.ns for _, record in updates)
    kept = updates[: FUSED_OPTIMIZER_LAUNCHES.value]
    op_ns = {index: 0.0 for index, _ in updates}
    op_ns |= {index: min(ns, before) / len(kept) for index, _ in kept}
    eager = step.machine.overheads.eager_op_ns or 0.0
    if step.device == "cpu":
        return Edit.set_time(op_ns) + Edit.save_step(_dispatch_saving_ns(step, len(updates)))
    ops = [index for index, _ in updates]
    spent = float(step.launches.host_ns[step.actions_of(ops)].sum())
    # What remains: looking at every parameter in Python, as the fused form also does.
    left = min(spent, OPTIMIZER_HOST_LEFT.value * spent + len(kept) * eager)
    return Edit.set_time(op_ns) + Edit.scale_launches(ops, 0.0) + Edit.add_host([kept[0][0]], left)


def _dispatch_saving_ns(step: StepView, count: int) -> float:
    """CPU dispatch time saved by a few fused calls instead of `count` separate ones."""
    dispatch = step.memoised(_dispatch_ns)
    if dispatch is None:
        eager = step.machine.overheads.eager_op_ns or 0.0
        return max(0, count - FUSED_OPTIMIZER_LAUNCHES.value) * eager
    return (1 - OPTIMIZER_CPU_LEFT.value) * dispatch


def _dispatch_ns(step: StepView) -> float | None:
    """The time of the optimizer's clean phase besides its operators, before any edit; None if that
    was not measured."""
    phase = step.phases.get("optimizer")
    if phase is None:
        return None
    optimizers = (
        record.exposed_ns for record in step.op_records if record.phase == Phase.OPTIMIZER
    )
    return max(0.0, phase - step.cpu_contention * sum(optimizers))


FAULT = Fault(
    id="unfused-optimizer",
    title="Optimizer updates parameters one by one",
    kind="tuning",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(optimizers.FUSED,),
)
