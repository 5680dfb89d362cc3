"""What the terminal says of a diagnosis."""

from __future__ import annotations

import msgspec

from boundby.model.diagnosis import Range
from boundby.report.terminal import as_text
from tests.diagnoses import real_diagnosis


def test_a_finding_that_promises_next_to_nothing_is_named_not_explained() -> None:
    diagnosis = real_diagnosis()
    first, second = diagnosis.findings[:2]
    slight = Range(low=0.0, expected=0.002 * diagnosis.step.wall_ns, high=2e6)
    findings = [first, msgspec.structs.replace(second, saving_ns=slight)]
    said = as_text(msgspec.structs.replace(diagnosis, findings=findings))
    assert f"1. {first.fault} would save" in said
    assert f"expected to save less than 1%: {second.fault} (up to 2.00 ms)" in said
    assert f"{second.fault} would save" not in said
    assert second.assumes not in said
