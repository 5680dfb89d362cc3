"""Diagnoses of saved observations and traces equal the golden ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from boundby import faults
from boundby.faults import FAULTS
from tests.diagnosis.golden import CASES, diagnosis_of, expected_file, summary


@pytest.mark.parametrize("name", CASES)
def test_diagnosis_equals_golden(name: str) -> None:
    """`make golden` accepts a change that is meant."""
    expected = json.loads(expected_file(name).read_text())
    found = summary(diagnosis_of(name))
    assert not list(_differences(expected, found, "")), "see tests/diagnosis/golden.py"


def test_a_fault_that_raises_is_noted_and_the_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = next(iter(CASES))
    before = diagnosis_of(name)
    (first, *_) = [one.fault for one in before.findings]
    at = next(at for at, fault in enumerate(FAULTS) if fault.id == first)

    def fail(_: object) -> None:
        raise LookupError("planted")

    failing = [*FAULTS[:at], replace(FAULTS[at], detect=fail), *FAULTS[at + 1 :]]
    monkeypatch.setattr(faults, "FAULTS", failing)
    after = diagnosis_of(name)
    (note,) = [one for one in after.notes if one.code == "fault-failed"]
    assert first in note.text and "LookupError: planted" in note.text
    assert note.detail is not None and "Traceback" in note.detail
    assert first not in {one.fault for one in after.findings}
    assert not [one for one in before.notes if one.code == "fault-failed"]


def _differences(expected: Any, found: Any, at: str) -> Any:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            if key in expected and key in found:
                yield from _differences(expected[key], found[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}: {'gone' if key in expected else 'new'}"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(one, other, f"{at}[{index}]")
    elif isinstance(expected, float) and isinstance(found, float | int):
        if found != pytest.approx(expected, rel=1e-4, abs=1.0):
            yield f"{at}: {expected:g}, now {found:g}"
    elif expected != found:
        yield f"{at}: {expected}, now {found}"
