"""Golden diagnoses: what the analysis finds in saved observations and traces of tests/data.

`make golden` writes the expected files again, after a change that is meant to alter them; the
difference then shows in the commit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boundby.model.diagnosis import Diagnosis
from boundby.model.estimate import Estimate
from boundby.session.traces import load

DATA = Path(__file__).parent.parent / "data"
_EXPECTED = DATA / "golden"
_MOST_LINES = 8


def _cases() -> dict[str, tuple[Path, float | None]]:
    """Each case's file and the time of a clean step, where one is given."""
    saved = sorted((DATA / "observations").glob("*/observation.bin"))
    cases: dict[str, tuple[Path, float | None]] = {
        f"live-{path.parent.name}": (path, None) for path in saved
    }
    traces = sorted([*DATA.glob("h200/*.json.gz"), *DATA.glob("xplane/*.pb.gz")])
    for path in traces:
        cases[f"trace-{path.name.partition('.')[0]}"] = (path, None)
    cases["wall-bad_mlp_syncs"] = (DATA / "h200" / "bad_mlp_syncs.json.gz", 20e6)
    return cases


CASES = _cases()


def diagnosis_of(name: str) -> Diagnosis:
    path, wall_ns = CASES[name]
    return load(path, wall_ns=wall_ns)


def summary(diagnosis: Diagnosis) -> dict[str, Any]:
    """What users act on: account, verdict, lines, findings with their savings, batches."""
    groups = diagnosis.account.groups()
    return {
        "kind": diagnosis.step.kind,
        "wall_ns": diagnosis.step.wall_ns,
        "wall_interval_ns": list(diagnosis.step.wall_interval_ns),
        "account": {
            name: {"ns": group.ns, "excess_ns": group.excess_ns, "parts": group.parts}
            for name, group in groups.items()
        },
        "bound_by": diagnosis.verdict.bound_by,
        "uncertain": diagnosis.verdict.uncertain,
        "if_free": diagnosis.verdict.if_free,
        "lines": {row.where: row.ns for row in diagnosis.lines[:_MOST_LINES]},
        "findings": {
            finding.fault: {"where": finding.where, "saving_ns": _range(finding.saving_ns)}
            for finding in diagnosis.findings
        },
        "what_if": {" + ".join(row.faults): _range(row.wall_ns) for row in diagnosis.what_if},
        "batches": {str(row.factor): _range(row.wall_ns) for row in diagnosis.batches},
        "notes": sorted(note.code for note in diagnosis.notes),
    }


def expected_file(name: str) -> Path:
    return _EXPECTED / f"{name}.json"


def _range(found: Estimate) -> list[float]:
    return [found.low, found.expected, found.high]


def _rounded(value: Any) -> Any:
    """Six significant digits: sums differ in the last ones between processors."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def _write_all() -> None:
    _EXPECTED.mkdir(exist_ok=True)
    for name in CASES:
        found = _rounded(summary(diagnosis_of(name)))
        expected_file(name).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    _write_all()
