"""What is worth trying: the treatments of what was found, on the device at hand."""

from __future__ import annotations

from collections.abc import Collection

from boundby import remedies
from boundby.errors import BoundbyError
from boundby.model.diagnosis import Diagnosis, Finding, Range
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
    known = {remedy.fault: remedy for remedy in remedies.REMEDIES}
    for fault in (*only, *skip):
        if fault not in known:
            raise BoundbyError(f"no fault is called {fault}: boundby explain lists them")
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
        _candidate(treatment, [known[fault] for fault in faults], found, diagnosis.step.wall_ns)
        for treatment, faults in mended.items()
    ]


def _usable(remedy: Remedy, device: str) -> list[Treatment]:
    return [treatment for treatment in remedy.treatments if device in treatment.devices]


def _candidate(
    treatment: Treatment, mends: list[Remedy], found: dict[str, Finding], wall_ns: float
) -> Candidate:
    first = found.get(mends[0].fault)
    return Candidate(
        key=f"{mends[0].fault}/{treatment.name}",
        faults=tuple(remedy.fault for remedy in mends),
        change=treatment.change,
        predicted=promised(first, wall_ns) if first is not None else None,
        precision=treatment.precision,
        excludes=frozenset(fault for remedy in mends for fault in remedy.excludes),
        environment=tuple(treatment.environment.items()),
        preparation_s=treatment.preparation_s,
        slot=treatment.slot,
    )


def promised(finding: Finding, wall_ns: float) -> Range:
    """A finding's saving as a speed-up."""
    saving = finding.saving_ns
    low, expected, high = (
        wall_ns / max(wall_ns - saved, 0.01 * wall_ns)
        for saved in (saving.low, saving.expected, saving.high)
    )
    return Range(low=low, expected=expected, high=high)
