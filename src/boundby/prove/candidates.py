"""What is worth trying: the treatments of what was found, on the device at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from boundby import faults as remedies
from boundby.faults import Fault, Fix
from boundby.model.diagnosis import Diagnosis, Estimate
from boundby.model.errors import BoundbyError
from boundby.prove.candidate import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a user wants tried: names of faults, or of single fixes.

    `only` these; never those to `skip`; `also` these, whether anything speaks for them or not;
    `everything`: all that there is.
    """

    only: Collection[str] = ()
    skip: Collection[str] = ()
    also: Collection[str] = ()
    everything: bool = False

    def check(self) -> None:
        """Fail, in one line, on a name that nobody knows."""
        known = {remedy.id for remedy in remedies.FAULTS}
        known |= {one.name for remedy in remedies.FAULTS for one in remedy.fixes}
        for name in (*self.only, *self.skip, *self.also):
            if name not in known:
                raise BoundbyError(
                    f"no fault and no fix is called {name}: boundby explain lists them"
                )

    def asks_for(self, fault: str, treatment: Fix) -> bool:
        named = (*self.only, *self.also)
        return fault in named or treatment.name in named

    def allows(self, fault: str, treatment: Fix, *, found: bool) -> bool:
        if fault in self.skip or treatment.name in self.skip:
            return False
        if self.asks_for(fault, treatment):
            return True
        return not self.only and (found or self.everything)


def candidates_of(diagnosis: Diagnosis, choice: Choice) -> list[Candidate]:
    """Treatments by the saving that is expected of them."""
    choice.check()
    found = {finding.fault for finding in diagnosis.findings}
    mended: dict[Fix, list[Fault]] = {}
    for remedy, treatment in _pairs(diagnosis):
        if diagnosis.machine.kind not in treatment.devices:
            continue
        is_worth_it = remedy.id in found or _is_always_tried(treatment, diagnosis)
        if not choice.allows(remedy.id, treatment, found=is_worth_it):
            continue
        mends = mended.setdefault(treatment, [])
        # Asked for by its own name, it stands for one fault at most that was not found.
        if remedy.id in found or not mends or choice.everything:
            mends.append(remedy)
    every = [
        _candidate(fix, sorted(mends, key=lambda one: one.id not in found), diagnosis, choice)
        for fix, mends in mended.items()
    ]
    return sorted(every, key=lambda one: one.unfounded)


def _is_always_tried(fix: Fix, diagnosis: Diagnosis) -> bool:
    """Not in fewer digits where the device is known to compute no faster in them."""
    if not fix.always_tried or fix.precision is None:
        return fix.always_tried
    rate = diagnosis.machine.rate(f"matmul.{fix.precision}")
    float32 = diagnosis.machine.rate("matmul.float32")
    return rate is None or float32 is None or rate > float32


def likeliest(diagnosis: Diagnosis, choice: Choice) -> list[Candidate]:
    """Without a diagnosis: the first fix of each fault, if it can be switched live."""
    first = {fault.fixes[0].name for fault in remedies.FAULTS if fault.fixes and not choice.only}
    live = {fix.name for fault in remedies.FAULTS for fix in fault.fixes if fix.scope == "step"}
    wanted = replace(choice, also=[*choice.also, *sorted(first & live - {*choice.skip})])
    asked = {one.key for one in candidates_of(diagnosis, choice) if one.asked}
    return [
        structs.replace(one, asked=one.key in asked, unfounded=one.key not in asked)
        for one in candidates_of(diagnosis, wanted)
    ]


def pointless(diagnosis: Diagnosis, choice: Choice) -> list[str]:
    """Fixes that were asked for by name and are for other devices than this one."""
    every = {one for remedy in remedies.FAULTS for one in remedy.fixes}
    named = {*choice.only, *choice.also}
    return sorted(
        one.name for one in every if one.name in named and diagnosis.machine.kind not in one.devices
    )


def _pairs(diagnosis: Diagnosis) -> Iterator[tuple[Fault, Fix]]:
    """The likeliest way for each fault first, then the second ways; found faults before others."""
    known = {remedy.id: remedy for remedy in remedies.FAULTS}
    found = [known[one.fault] for one in diagnosis.findings if one.fault in known]
    ordered = [*found, *(remedy for remedy in remedies.FAULTS if remedy not in found)]
    ways = max((len(remedy.fixes) for remedy in ordered), default=0)
    for way in range(ways):
        for remedy in ordered:
            for treatment in remedy.fixes[way : way + 1]:
                yield remedy, treatment


def _candidate(
    treatment: Fix, mends: list[Fault], diagnosis: Diagnosis, choice: Choice
) -> Candidate:
    faults = tuple(remedy.id for remedy in mends)
    found = {finding.fault for finding in diagnosis.findings}
    is_asked = any(choice.asks_for(fault, treatment) for fault in faults)
    covers = treatment.covers
    if not any(finding.fault in covers for finding in diagnosis.findings):
        covers = faults[:1]
    return Candidate(
        key=f"{faults[0]}/{treatment.name}",
        faults=faults,
        change=treatment.change,
        predicted=promised(diagnosis, covers),
        precision=treatment.precision,
        excludes=frozenset(fault for remedy in mends for fault in remedy.excludes),
        scope=treatment.scope,
        framework=treatment.framework,
        environment=dict(treatment.environment),
        preparation_s=treatment.preparation_s,
        slot=treatment.slot,
        covers=covers,
        asked=is_asked,
        silent=not _is_ours(treatment),
        needs_cores=treatment.needs_cores,
        unfounded=not (is_asked or choice.everything or found.intersection((*covers, *faults))),
    )


def _is_ours(treatment: Fix) -> bool:
    made = treatment.apply or treatment.switch
    apply = getattr(made, "func", made)
    return apply is None or apply.__module__.partition(".")[0] == __name__.partition(".")[0]


def promised(diagnosis: Diagnosis, covers: Collection[str]) -> Estimate | None:
    """What the replay says of these faults mended together, as a speed-up; None if not found."""
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
