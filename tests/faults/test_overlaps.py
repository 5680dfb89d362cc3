"""A general finding does not repeat, at the same line, what a specific one knows."""

from __future__ import annotations

from boundby.faults import FAULTS
from boundby.faults.overlaps import yielding
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding

YIELDS = {"general": ("specific",)}


def finding(fault: str, expected: float, *where: str) -> Finding:
    saving = Estimate(low=expected / 2, expected=expected, high=2 * expected)
    return Finding(fault=fault, group="overhead", saving_ns=saving, change="", where=list(where))


def faults(*findings: Finding) -> list[str]:
    return [one.fault for one in yielding(findings, YIELDS)]


def test_specific_finding_replaces_general_one_at_the_same_line() -> None:
    specific, general = finding("specific", 8, "a:1"), finding("general", 9, "a:1")
    (kept,) = yielding([general, specific], YIELDS)
    assert kept.fault == "specific" and kept.also == ["general"]


def test_findings_at_different_lines_both_stay() -> None:
    assert faults(finding("general", 9, "a:2"), finding("specific", 8, "a:1")) == [
        "general",
        "specific",
    ]
    assert faults(finding("general", 9, "a:1"), finding("other", 8, "a:1")) == ["general", "other"]


def test_general_finding_keeps_other_lines_and_remaining_saving() -> None:
    general, _ = yielding(
        [finding("general", 9, "a:1", "a:2"), finding("specific", 3, "a:1")], YIELDS
    )
    assert general.where == ["a:2"]
    assert general.saving_ns == Estimate(low=1.5, expected=6, high=15)


def test_general_finding_without_its_costliest_line_is_small() -> None:
    both = [finding("general", 9, "a:1", "a:2"), finding("specific", 6, "a:1")]
    assert [one.fault for one in yielding(both, YIELDS)] == ["specific"]


def test_small_specific_finding_does_not_replace_a_large_general_one() -> None:
    general, specific = yielding(
        [finding("general", 9, "a:1"), finding("specific", 1, "a:1")], YIELDS
    )
    assert (general.fault, general.saving_ns.expected) == ("general", 8)
    assert specific.also == []


def test_merged_finding_may_be_merged_again() -> None:
    yields = {"general": ("specific",), "specific": ("largest",)}
    findings = [
        finding("general", 4, "a:1"),
        finding("specific", 5, "a:1"),
        finding("largest", 6, "a:1"),
    ]
    (kept,) = yielding(findings, yields)
    assert kept.fault == "largest"


def test_overlap_rules_name_existing_faults() -> None:
    known = {fault.id for fault in FAULTS}
    assert {name for fault in FAULTS for name in fault.yields_to} <= known
