"""A measured step on another chip: each operator keeps its distance from the roofline."""

from __future__ import annotations

from pathlib import Path

from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.plan import PlanResult, PlanTerm, TermKind
from boundby.model.rows import OpRow
from boundby.plan import assumptions, chips
from boundby.plan.chips import Target
from boundby.plan.result import bound_by

_NAMES: dict[TermKind, str] = {
    "matmul": "compute-bound operators",
    "memory": "memory-bound operators",
    "overhead": "small operators and unknown",
}


def plan_diagnosis(path: Path, target: Target, count: int = 1) -> PlanResult:
    """The saved step on another chip, at the same batch per chip.

    Compute-bound operators scale with the sustained matrix rate of their dtype, memory-bound ones
    with the memory bandwidth; small operators, unknown ones and the time between operators stay.
    """
    diagnosis = store.read(path, Diagnosis, "diagnosis")
    if not diagnosis.ops:
        raise BoundbyError(f"{path} has no operators to scale")
    old = chips.printed(diagnosis.machine)
    if old is None:
        raise BoundbyError(
            f"{path} was measured on {diagnosis.machine.device}, which is not in the table of "
            "accelerators: a step measured on one of them would scale"
        )
    sums: dict[TermKind, float] = dict.fromkeys(_NAMES, 0.0)
    before = 0.0
    for op in diagnosis.ops:
        before += op.ns
        kind, factor = _scale(op, old, target)
        sums[kind] += op.ns * factor
    rest = max(0.0, diagnosis.step.wall_ns - before)
    terms = [
        PlanTerm(name=_NAMES[kind], kind=kind, total_ns=ns, exposed_ns=ns, formula="scaled")
        for kind, ns in sums.items()
        if ns
    ]
    if rest:
        terms.append(
            PlanTerm(
                name="between operators, as measured",
                kind="overhead",
                total_ns=rest,
                exposed_ns=rest,
                formula="scaled",
            )
        )
    expected = sum(one.exposed_ns for one in terms)
    spread = 1 + assumptions.STEP_UNCERTAINTY
    notes = [f"measured on {old.name}: {diagnosis.step.wall_ns / 1e6:.2f} ms"]
    if count > 1:
        notes.append(
            f"{count} chips with the same batch each; the sum of gradients is not included: "
            "the diagnosis does not say how many parameters there are"
        )
    return PlanResult(
        title=f"{diagnosis.target or path.name}, measured step scaled",
        chip=target.name,
        chips=count,
        step_ns=Estimate(low=expected / spread, expected=expected, high=expected * spread),
        overlapped_ns=expected,  # as it was measured
        serial_ns=expected,
        bound_by=bound_by(terms),
        terms=terms,
        notes=notes,
    )


def _scale(op: OpRow, old: Target, target: Target) -> tuple[TermKind, float]:
    if op.bound == "compute" and op.dtype:
        unit = f"matmul.{op.dtype}"
        return "matmul", old.sustained_rate(unit) / target.sustained_rate(unit)
    if op.bound == "memory":
        return "memory", old.memory_rate / target.memory_rate
    return "overhead", 1.0
