"""The head of a diagnosis report: verdict, step, account, utilisation."""

from __future__ import annotations

import shlex

from rich.table import Table
from rich.text import Text

from boundby.model import Machine, units
from boundby.model.account import Group, Utilisation
from boundby.model.diagnosis import DecodeLimit, Diagnosis
from boundby.model.run import ONCE, RunPart, RunPartName, RunParts
from boundby.model.step_kind import StepUnit
from boundby.report.machine import age
from boundby.report.words import COLOURS, PART_NAMES, SHORT_PART_NAMES, counted, sentence

_BAR_CELLS = 40  # columns
_SHORT_BAR_CELLS = 20  # columns
# With a smaller share of device time of known cost, the header says so.
_MOSTLY_COSTED = 0.9
# Parts of a group with a smaller share of the step are left out.
_SMALLEST_PART = 0.001


def verdict_line(diagnosis: Diagnosis) -> Text:
    """The verdict: what the step is bound by, and why."""
    verdict = diagnosis.verdict
    bound = verdict.bound_by
    words = "Bound by: unknown" if bound == "unknown" else f"{bound.capitalize()}-bound"
    if verdict.or_bound_by:
        words = f"{bound.capitalize()}- or {verdict.or_bound_by}-bound"
    doubt = " (uncertain)" if verdict.uncertain and bound != "unknown" else ""
    return Text.assemble((f"{words}{doubt}.", f"bold {COLOURS[bound]}"), " ", sentence(verdict.why))


def step_line(diagnosis: Diagnosis) -> Text:
    """The step: its kind and time, the device, the source of the roofs."""
    step = diagnosis.step
    low, high = step.wall_interval_ns
    steps = counted(len(step.samples_ns), f"{step.wall_source} step")
    shown = list(dict.fromkeys([units.time(low), units.time(high)]))
    interval = f"{' to '.join(shown)}, " if len(shown) > 1 else ""
    samples = f"{interval}{steps}" if step.samples_ns else "as given"
    name = {"step": "Step", "traced": "Traced step"}.get(step.kind, f"Step {step.kind}")
    if inside := unit_words(step.unit):
        name += f" ({inside})"
    if step.profiled_ns is not None:
        profiled = units.time(step.profiled_ns)
        samples = f"{interval}estimated without the profiler; {profiled} with it"
        if profiled == units.time(step.wall_ns) and not interval:
            samples = "almost no profiler overhead"
    return Text(
        f"{name}: {units.time(step.wall_ns)} ({samples}) on {diagnosis.machine.device}, "
        f"{roofs_source(diagnosis.machine)}",
        style="dim",
    )


def unit_words(unit: StepUnit | None) -> str:
    """The contents of one step, if that is more than one pass and one update."""
    if unit is None or max(unit.calls, unit.backwards, unit.updates, unit.evaluations) <= 1:
        return ""
    words = []
    if unit.calls == unit.backwards:
        words.append(counted(unit.calls, "forward and backward pass", "es") if unit.calls else "")
    else:
        words.append(counted(unit.calls, "forward call") if unit.calls else "")
        words.append(counted(unit.backwards, "backward pass", "es") if unit.backwards else "")
    words.append(counted(unit.updates, "update") if unit.updates else "")
    if unit.evaluations:
        words.append(f"{counted(unit.evaluations, 'call')} without gradients")
    return ", ".join(word for word in words if word)


_PART_WORDS = {
    "import": "imports",
    "compile": "compilation",
    "setup": "set-up",
    "train": "training",
    "eval": "evaluation",
    "rollout": "rollouts",
    "checkpoint": "checkpoints",
    "data_start": "starting data workers",
}
# Parts of the run with a smaller share are left out of the line.
_SMALLEST_RUN_PART = 0.005


# If the diagnosed steps are a smaller share of the recurring run time, the report begins with that.
_LEAST_COVERED = 0.5


def coverage_line(diagnosis: Diagnosis) -> Text | None:
    """A line on the parts of the run that are not the diagnosed step, if this is less than half of
    the recurring run time."""
    run = diagnosis.run
    share = run.step_share_of_recurring if run is not None else None
    if run is None or share is None or share >= _LEAST_COVERED:
        return None
    recurring = [part for part in run.parts if part.name not in ONCE]
    covered_parts: tuple[RunPartName, ...] = ("train",)
    if diagnosis.step.unit is not None and not diagnosis.step.unit.backwards:
        covered_parts = ("rollout", "eval")
    outside = max(
        recurring, key=lambda part: part.ns * (part.name not in covered_parts), default=None
    )
    words = (
        f"Only {units.share(share)} of the run's time, without imports and set-up, is in the step "
        f"diagnosed here"
    )
    if (
        outside is not None
        and outside.name not in covered_parts
        and outside.ns > share * run.recurring_ns
    ):
        name = _part_words(run, outside)
        words += f"; {units.share(outside.ns / run.recurring_ns)} is {name}"
        if outside.details:
            words += f", most of it at {next(iter(outside.details))}"
        if outside.name in ("eval", "rollout") and diagnosis.framework != "jax":
            words += " (--kind forward diagnoses its steps)"
    elif diagnosis.step.others:
        other = max(diagnosis.step.others, key=lambda one: one.steps * one.wall_ns)
        words += (
            f"; more may be in other steps: {other.kind}, {units.time(other.wall_ns)} each "
            f"(--kind {shlex.quote(other.kind)} diagnoses these)"
        )
    return Text(f"{words}.", style="bold")


def _part_words(run: RunParts, part: RunPart) -> str:
    is_inference = part.name == "eval" and run.part("train") is None
    return "inference" if is_inference else _PART_WORDS.get(part.name, part.name)


def run_line(run: RunParts) -> Text:
    """The parts of the whole run in one line: `Run: training 61%, evaluation 30%, imports 9%`."""
    shown = [part for part in run.parts if part.share >= _SMALLEST_RUN_PART]
    parts = ", ".join(
        f"{_part_words(run, part)} {units.share(part.share)}{'*' if part.extrapolated else ''}"
        for part in shown
    )
    covered = ""
    if run.step_share is not None:
        covered = f"; this kind of step is {units.share(run.step_share)} of it"
    return Text(f"Run of {units.time(run.wall_ns)}: {parts}{covered} ({run.scope})", style="dim")


def roofs_source(machine: Machine) -> str:
    if machine.measured_at is not None:
        return f"roofs {age(machine)}{' (quick)' if machine.quick else ''}"
    return f"roofs from the {machine.chip} datasheet" if machine.chip else "roofs unknown"


def utilisation_words(used: Utilisation) -> str:
    """MFU, HFU, memory bandwidth and device-busy share, as far as they are known."""
    words = []
    for name, share, sheet in (
        ("MFU", used.mfu, used.mfu_datasheet),
        ("HFU", used.hfu, used.hfu_datasheet),
    ):
        if name == "HFU" and share == used.mfu:
            continue
        if share is not None:
            of_sheet = f" ({units.share(sheet)} of datasheet)" if sheet and sheet != share else ""
            least = "at least " if used.at_least else ""
            words.append(f"{name} {least}{units.share(share)}{of_sheet}")
    if used.bandwidth is not None:
        past = " ?" if used.bandwidth > 1 else ""
        words.append(f"memory bandwidth {units.share(used.bandwidth)}{past}")
    if used.device is not None:
        words.append(f"device busy {units.share(used.device)}")
    if used.costed is not None and used.costed < _MOSTLY_COSTED:
        words.append(f"cost known for {units.share(used.costed)} of device time")
    return " · ".join(words)


def decode_words(limit: DecodeLimit, wall_ns: float) -> str:
    """The bytes that a decode step reads, and its time relative to the minimum for them."""
    read = f"{units.size(limit.weight_bytes)} of weights"
    if limit.passes > 1:
        read += f" (in {limit.passes} passes)"
    if limit.kv_bytes:
        read += f" and {units.size(limit.kv_bytes)} of keys and values"
    return (
        f"decode reads {read}: at least {units.time(limit.limit_ns)} on this device; "
        f"the step takes {units.time(wall_ns)}, {units.share(limit.share)} of the limit's speed"
    )


def account(diagnosis: Diagnosis, *, verbose: bool) -> Table:
    """The four groups of the account, each with its bar and parts."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    cells = _BAR_CELLS if verbose else _SHORT_BAR_CELLS
    for name, group in diagnosis.account.groups().items():
        parts = _parts(group, diagnosis.step.wall_ns, verbose=verbose)
        table.add_row(
            Text(name, style=COLOURS[name]),
            Text("█" * round(group.share * cells), style=COLOURS[name]),
            units.share(group.share),
            units.time(group.ns),
            parts,
        )
    return table


def _parts(group: Group, wall_ns: float, *, verbose: bool) -> str:
    names = PART_NAMES if verbose else SHORT_PART_NAMES
    parts = [
        f"{names.get(part, part)} {units.time(ns)}"
        for part, ns in sorted(group.parts.items(), key=lambda item: -item[1])
        if ns >= _SMALLEST_PART * wall_ns
    ]
    if group.excess_ns and group.ns:
        parts.append(f"{units.time(group.excess_ns)} above the roofline minimum")
    return ", ".join(parts)
