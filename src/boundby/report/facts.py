"""Single facts of a diagnosis report: utilisation, phases, idle causes, profiler slowdown."""

from __future__ import annotations

from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis, KindOfStep, StepTimes
from boundby.report.header import decode_words, utilisation_words
from boundby.report.words import counted

_MOST_CAUSES = 4  # display limit
# Idle time with a smaller share of the step is left out.
_SHORTEST_IDLE_SHARE = 0.005
_IDLE_CAUSES = {"sync": "after a sync", "data": "waiting for data"}


def facts(diagnosis: Diagnosis) -> list[Text]:
    step, used = diagnosis.step, diagnosis.utilisation
    lines = []
    words = utilisation_words(used)
    if words:
        lines.append(_fact("utilisation", words))
    if diagnosis.decode_limit is not None:
        lines.append(_fact("limit", decode_words(diagnosis.decode_limit, step.wall_ns)))
    lines += _phases(step)
    if used.host_lead_ns is not None:
        lead = f"{units.time(used.host_lead_ns)} (profiled)"
        lines.append(_fact("launch lead (host ahead of the device)", lead))
    for row in diagnosis.idle[:_MOST_CAUSES]:
        if row.ns >= _SHORTEST_IDLE_SHARE * step.wall_ns:
            at = f" at {row.where}" if row.where else ""
            cause = _IDLE_CAUSES[row.cause]
            lines.append(_fact(f"device idle, {cause}", f"{units.time(row.ns)}, {row.name}{at}"))
    if len(step.samples_ns) > 1 and step.wall_source == "profiled":
        low, high = min(step.samples_ns), max(step.samples_ns)
        lines.append(_fact("steps in the trace", f"{units.time(low)} to {units.time(high)} each"))
    if step.dilation is not None:
        lines.append(_fact("profiler slowdown", _dilation_words(step, step.dilation)))
    return lines + [_fact("other steps", _other_words(other)) for other in step.others]


def _dilation_words(step: StepTimes, dilation: float) -> str:
    words = f"the profiled step took {dilation:.2f}x as long as a clean one"
    if step.inferred_share:
        words += (
            f"; {units.share(step.inferred_share)} of the step is idle time, divided in the "
            "proportions of the profile"
        )
    return words


def _phases(step: StepTimes) -> list[Text]:
    """Host time of each phase; on a CPU that is the whole step. A lone forward is the step."""
    on_device = step.device_busy_ns is not None
    if {phase.name for phase in step.phases} <= {"forward", "other"}:
        words = units.time(sum(phase.host_issue_ns for phase in step.phases))
        return [_fact("host time", words)] if on_device and step.phases else []
    words = ", ".join(f"{p.name} {units.time(p.host_issue_ns)}" for p in step.phases)
    return [_fact("host time per phase" if on_device else "phases, timed in other steps", words)]


def _other_words(other: KindOfStep) -> str:
    kind = "" if other.kind == "step" else f"{other.kind}: "
    return f"{kind}{counted(other.steps, 'step')} of {units.time(other.wall_ns)}"


def _fact(subject: str, words: str) -> Text:
    return Text.assemble((f"{subject}: ", "dim"), words)
