"""The fixes to measure: those of the faults found, on this device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from boundby.faults import FAULTS, Fault, Fix
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.prove.candidate import Candidate

# With a smaller gain, fixes that need new processes come later: they take more time than switches.
_DOMINANT_GAIN = 1.2
_RESERVED_GAIN = 1.05  # with a smaller prediction, no time is reserved; as `PROMISING` in rounds.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The fixes that a user wants measured, by fault id or by fix name.

    `only`: these alone. `skip`: never these. `also`: these too, with or without a finding.
    `everything`: all fixes.
    """

    only: Collection[str] = ()
    skip: Collection[str] = ()
    also: Collection[str] = ()
    everything: bool = False

    def check(self) -> None:
        """Raise a `BoundbyError` for an unknown name."""
        names = {fault.id for fault in FAULTS}
        names |= {fix.name for fault in FAULTS for fix in fault.fixes}
        for name in (*self.only, *self.skip, *self.also):
            if name not in names:
                raise BoundbyError(
                    f"no fault and no fix is called {name}: boundby explain lists them"
                )

    def requests(self, fault: str, fix: Fix) -> bool:
        named = (*self.only, *self.also)
        return fault in named or fix.name in named

    def allows(self, fault: str, fix: Fix, *, found: bool) -> bool:
        if fault in self.skip or fix.name in self.skip:
            return False
        if self.requests(fault, fix):
            return True
        return not self.only and (found or self.everything)


def candidates_of(diagnosis: Diagnosis, choice: Choice) -> list[Candidate]:
    """The candidates, those with a finding first."""
    choice.check()
    found_faults = {finding.fault for finding in diagnosis.findings}
    faults_by_fix: dict[Fix, list[Fault]] = {}
    for fault, fix in _pairs(diagnosis):
        if diagnosis.machine.kind not in fix.devices:
            continue
        if diagnosis.framework not in (None, fix.framework):
            continue
        is_suggested = fault.id in found_faults or _is_always_tried(fix, diagnosis)
        if not choice.allows(fault.id, fix, found=is_suggested):
            continue
        its_faults = faults_by_fix.setdefault(fix, [])
        # A fix requested by name is listed with at most one fault that was not found.
        if fault.id in found_faults or not its_faults or choice.everything:
            its_faults.append(fault)
    every = [
        _candidate(
            fix, sorted(its_faults, key=lambda one: one.id not in found_faults), diagnosis, choice
        )
        for fix, its_faults in faults_by_fix.items()
    ]
    return sorted(every, key=lambda one: one.without_finding)


def _is_always_tried(fix: Fix, diagnosis: Diagnosis) -> bool:
    """Whether a fix is measured without a finding; not if its precision is no faster here."""
    if not fix.always_tried or fix.precision is None:
        return fix.always_tried
    rate = diagnosis.machine.rate(f"matmul.{fix.precision}")
    float32 = diagnosis.machine.rate("matmul.float32")
    return rate is None or float32 is None or rate > float32


def candidates_without_diagnosis(diagnosis: Diagnosis, choice: Choice) -> list[Candidate]:
    """Candidates without a diagnosis: the first fix of each fault that can be switched live.

    Those that change something in most programs come first.
    """
    first = {fault.fixes[0].name for fault in FAULTS if fault.fixes and not choice.only}
    live = {fix.name for fault in FAULTS for fix in fault.fixes if fix.scope == "step"}
    wanted = replace(choice, also=[*choice.also, *sorted(first & live - {*choice.skip})])
    requested = {
        candidate.key for candidate in candidates_of(diagnosis, choice) if candidate.requested
    }
    usual = {fix.name for fault in FAULTS for fix in fault.fixes if fix.always_tried}
    chosen = [
        structs.replace(
            candidate,
            requested=candidate.key in requested,
            without_finding=candidate.key not in requested,
        )
        for candidate in candidates_of(diagnosis, wanted)
    ]
    return sorted(chosen, key=lambda one: (one.without_finding, one.fix not in usual))


def dominant_start_fixes(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Fixes that need a new process and are expected to gain more than every other fix: measured
    first.

    The others are then measured with them applied: a step that waits for data hides other problems.
    """
    live = [candidate.predicted for candidate in candidates if candidate.scope == "step"]
    best = max((predicted.expected for predicted in live if predicted is not None), default=1.0)
    return [
        candidate
        for candidate in candidates
        if candidate.scope == "start"
        and candidate.predicted is not None
        and candidate.predicted.expected > max(best, _DOMINANT_GAIN)
    ]


def is_reserved_for(candidate: Candidate) -> bool:
    """Whether time is reserved for its processes while other fixes are undecided."""
    return candidate.requested or (
        candidate.predicted is not None and candidate.predicted.expected > _RESERVED_GAIN
    )


def fixes_for_other_devices(diagnosis: Diagnosis, choice: Choice) -> list[str]:
    """Names of requested fixes that have no effect on this device."""
    every = {fix for fault in FAULTS for fix in fault.fixes}
    named = {*choice.only, *choice.also}
    return sorted(
        fix.name for fix in every if fix.name in named and diagnosis.machine.kind not in fix.devices
    )


def _pairs(diagnosis: Diagnosis) -> Iterator[tuple[Fault, Fix]]:
    """The first fix of each fault, then the second ones; found faults before others."""
    by_id = {fault.id: fault for fault in FAULTS}
    found_faults = [
        by_id[finding.fault] for finding in diagnosis.findings if finding.fault in by_id
    ]
    ordered = [*found_faults, *(fault for fault in FAULTS if fault not in found_faults)]
    most = max((len(fault.fixes) for fault in ordered), default=0)
    for at in range(most):
        for fault in ordered:
            for fix in fault.fixes[at : at + 1]:
                yield fault, fix


def _candidate(
    fix: Fix, its_faults: list[Fault], diagnosis: Diagnosis, choice: Choice
) -> Candidate:
    faults = tuple(fault.id for fault in its_faults)
    found_faults = {finding.fault for finding in diagnosis.findings}
    is_requested = any(choice.requests(fault, fix) for fault in faults)
    covers = fix.covers
    if not any(finding.fault in covers for finding in diagnosis.findings):
        covers = faults[:1]
    return Candidate(
        key=f"{faults[0]}/{fix.name}",
        faults=faults,
        change=fix.change,
        predicted=predicted_speedup(diagnosis, covers),
        precision=fix.precision,
        excludes=frozenset(excluded for fault in its_faults for excluded in fault.excludes),
        scope=fix.scope,
        framework=fix.framework,
        environment=dict(fix.environment),
        preparation_s=fix.preparation_s,
        slot=fix.slot,
        covers=covers,
        requested=is_requested,
        user_defined=not _is_built_in(fix),
        needs_cores=fix.needs_cores,
        keeps_compiled=fix.keeps_compiled,
        without_finding=not (
            is_requested or choice.everything or found_faults.intersection((*covers, *faults))
        ),
    )


def _is_built_in(fix: Fix) -> bool:
    made = fix.apply or fix.switch
    apply = getattr(made, "func", made)
    return apply is None or apply.__module__.partition(".")[0] == __name__.partition(".")[0]


def predicted_speedup(diagnosis: Diagnosis, covers: Collection[str]) -> Estimate | None:
    """The simulated speed-up with these faults fixed together; None if none was found."""
    wall = diagnosis.step.wall_ns
    findings = [finding for finding in diagnosis.findings if finding.fault in covers]
    if len(findings) == 1:
        saving = findings[0].saving_ns
        walls = [wall - saved for saved in (saving.low, saving.expected, saving.high)]
    else:
        detection = {fault for row in diagnosis.what_if for fault in row.faults}
        wanted = {finding.fault for finding in findings} & detection
        together = [row.wall_ns for row in diagnosis.what_if if set(row.faults) == wanted]
        if not wanted or not together:
            return None
        # The smallest findings are in no combination: at best each saves what it would alone.
        more = sum(finding.saving_ns.high for finding in findings if finding.fault not in detection)
        walls = [together[0].high, together[0].expected, together[0].low - more]
    low, expected, high = (wall / max(ns, 0.01 * wall) for ns in walls)
    return Estimate(low=low, expected=expected, high=high)
