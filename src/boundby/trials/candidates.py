"""What is worth trying: the treatments of what was found, on the device at hand."""

from __future__ import annotations

from collections.abc import Collection

from boundby import remedies
from boundby.errors import BoundbyError
from boundby.model.diagnosis import Diagnosis, Range
from boundby.remedies import Remedy, Treatment
from boundby.trials.combination import Candidate


def candidates_of(
    diagnosis: Diagnosis,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    everything: bool = False,
) -> list[Candidate]:
    """Treatments by the saving that is expected of them; `everything` adds those of no finding."""
    check_faults(only, skip)
    known = {remedy.fault: remedy for remedy in remedies.REMEDIES}
    found = {finding.fault: finding for finding in diagnosis.findings}
    faults = [fault for fault in found if fault in known]
    # Naming a fault asks for it, whether it was found or not.
    faults += [fault for fault in known if fault not in found and (everything or fault in only)]
    wanted = [fault for fault in faults if (not only or fault in only) and fault not in skip]
    mended: dict[Treatment, list[str]] = {}
    # The likeliest way for each fault first, then the second ways, and so on.
    ways = max((len(known[fault].treatments) for fault in wanted), default=0)
    for way in range(ways):
        for fault in wanted:
            for treatment in _usable(known[fault], diagnosis.machine.kind)[way : way + 1]:
                mended.setdefault(treatment, []).append(fault)
    return [
        _candidate(treatment, [known[fault] for fault in faults], diagnosis)
        for treatment, faults in mended.items()
    ]


def check_faults(*named: Collection[str]) -> None:
    """Fail, in one line, on a fault that nobody knows."""
    known = {remedy.fault for remedy in remedies.REMEDIES}
    for fault in (fault for names in named for fault in names):
        if fault not in known:
            raise BoundbyError(f"no fault is called {fault}: boundby explain lists them")


def _usable(remedy: Remedy, device: str) -> list[Treatment]:
    return [treatment for treatment in remedy.treatments if device in treatment.devices]


def _candidate(treatment: Treatment, mends: list[Remedy], diagnosis: Diagnosis) -> Candidate:
    faults = tuple(remedy.fault for remedy in mends)
    covers = treatment.covers or faults[:1]
    return Candidate(
        key=f"{faults[0]}/{treatment.name}",
        faults=faults,
        change=treatment.change,
        predicted=promised(diagnosis, covers),
        precision=treatment.precision,
        excludes=frozenset(fault for remedy in mends for fault in remedy.excludes),
        environment=tuple(treatment.environment.items()),
        preparation_s=treatment.preparation_s,
        slot=treatment.slot,
        covers=covers,
    )


def promised(diagnosis: Diagnosis, covers: Collection[str]) -> Range | None:
    """What the replay says of these faults mended together, as a speed-up; None if not found."""
    wall = diagnosis.step.wall_ns
    found = [finding for finding in diagnosis.findings if finding.fault in covers]
    if len(found) == 1:
        saving = found[0].saving_ns
        left = [wall - saved for saved in (saving.low, saving.expected, saving.high)]
    else:
        wanted = {finding.fault for finding in found}
        together = [one.wall_ns for one in diagnosis.what_if if set(one.faults) == wanted]
        if not wanted or not together:
            return None
        left = [together[0].high, together[0].expected, together[0].low]
    low, expected, high = (wall / max(ns, 0.01 * wall) for ns in left)
    return Range(low=low, expected=expected, high=high)
