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
_RESERVED_GAIN = 1.05


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
        known = {fault.id for fault in FAULTS}
        known |= {one.name for fault in FAULTS for one in fault.fixes}
        for name in (*self.only, *self.skip, *self.also):
            if name not in known:
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
    found = {finding.fault for finding in diagnosis.findings}
    faults_by_fix: dict[Fix, list[Fault]] = {}
    for fault, fix in _pairs(diagnosis):
        if diagnosis.machine.kind not in fix.devices:
            continue
        if diagnosis.framework not in (None, fix.framework):
            continue
        is_suggested = fault.id in found or _is_always_tried(fix, diagnosis)
        if not choice.allows(fault.id, fix, found=is_suggested):
            continue
        its_faults = faults_by_fix.setdefault(fix, [])
        # A fix requested by name is listed with at most one fault that was not found.
        if fault.id in found or not its_faults or choice.everything:
            its_faults.append(fault)
    every = [
        _candidate(fix, sorted(its_faults, key=lambda one: one.id not in found), diagnosis, choice)
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
    requested = {one.key for one in candidates_of(diagnosis, choice) if one.requested}
    usual = {fix.name for fault in FAULTS for fix in fault.fixes if fix.always_tried}
    found = [
        structs.replace(
            one, requested=one.key in requested, without_finding=one.key not in requested
        )
        for one in candidates_of(diagnosis, wanted)
    ]
    return sorted(found, key=lambda one: (one.without_finding, one.fix not in usual))


def dominant_start_fixes(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Fixes that need a new process and are expected to gain more than every other fix: measured
    first.

    The others are then measured with them applied: a step that waits for data hides other problems.
    """
    live = [one.predicted for one in candidates if one.scope == "step"]
    best = max((one.expected for one in live if one is not None), default=1.0)
    return [
        one
        for one in candidates
        if one.scope == "start"
        and one.predicted is not None
        and one.predicted.expected > max(best, _DOMINANT_GAIN)
    ]


def is_reserved_for(one: Candidate) -> bool:
    """Whether time is reserved for its processes while other fixes are undecided."""
    return one.requested or (one.predicted is not None and one.predicted.expected > _RESERVED_GAIN)


def fixes_for_other_devices(diagnosis: Diagnosis, choice: Choice) -> list[str]:
    """Names of requested fixes that have no effect on this device."""
    every = {one for fault in FAULTS for one in fault.fixes}
    named = {*choice.only, *choice.also}
    return sorted(
        one.name for one in every if one.name in named and diagnosis.machine.kind not in one.devices
    )


def _pairs(diagnosis: Diagnosis) -> Iterator[tuple[Fault, Fix]]:
    """The first fix of each fault, then the second ones; found faults before others."""
    known = {fault.id: fault for fault in FAULTS}
    found = [known[one.fault] for one in diagnosis.findings if one.fault in known]
    ordered = [*found, *(fault for fault in FAULTS if fault not in found)]
    most = max((len(fault.fixes) for fault in ordered), default=0)
    for at in range(most):
        for fault in ordered:
            for fix in fault.fixes[at : at + 1]:
                yield fault, fix


def _candidate(
    fix: Fix, its_faults: list[Fault], diagnosis: Diagnosis, choice: Choice
) -> Candidate:
    faults = tuple(fault.id for fault in its_faults)
    found = {finding.fault for finding in diagnosis.findings}
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
        without_finding=not (
            is_requested or choice.everything or found.intersection((*covers, *faults))
        ),
    )


def _is_built_in(fix: Fix) -> bool:
    made = fix.apply or fix.switch
    apply = getattr(made, "func", made)
    return apply is None or apply.__module__.partition(".")[0] == __name__.partition(".")[0]


def predicted_speedup(diagnosis: Diagnosis, covers: Collection[str]) -> Estimate | None:
    """The simulated speed-up with these faults fixed together; None if none was found."""
    wall = diagnosis.step.wall_ns
    found = [finding for finding in diagnosis.findings if finding.fault in covers]
    if len(found) == 1:
        saving = found[0].saving_ns
        left = [wall - saved for saved in (saving.low, saving.expected, saving.high)]
    else:
        detection = {fault for one in diagnosis.what_if for fault in one.faults}
        wanted = {finding.fault for finding in found} & detection
        together = [one.wall_ns for one in diagnosis.what_if if set(one.faults) == wanted]
        if not wanted or not together:
            return None
        # The smallest findings are in no combination: at best each saves what it would alone.
        more = sum(one.saving_ns.high for one in found if one.fault not in detection)
        left = [together[0].high, together[0].expected, together[0].low - more]
    low, expected, high = (wall / max(ns, 0.01 * wall) for ns in left)
    return Estimate(low=low, expected=expected, high=high)
