"""What is shown first is what an expert would do first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from boundby import faults
from boundby.faults.fault import Detection, Fault
from boundby.faults.ranking import ranked
from boundby.model.account import Group
from boundby.model.estimate import Estimate
from boundby.model.evidence import ProgramSettings, StepEvidence
from boundby.model.finding import Finding, FindingKind, RelativeTo
from boundby.model.run import RunPart, RunParts
from boundby.step.edit import Edit


def finding(
    fault: str,
    percent: float,
    *,
    kind: FindingKind = "tuning",
    relative_to: RelativeTo = "step",
    static: bool = False,
    low: float | None = None,
    grows: bool = False,
) -> Finding:
    saving = Estimate(low=percent if low is None else low, expected=percent, high=percent)
    return Finding(
        fault=fault,
        kind=kind,
        group="overhead",
        saving_ns=saving,
        relative_to=relative_to,
        static=static,
        grows=grows,
        change="",
    )


def order(*findings: Finding, run: RunParts | None = None, **before: list[str]) -> list[str]:
    return [one.fault for one in ranked(findings, wall_ns=100.0, run=run, before=before)]


def test_measured_mistake_is_ranked_before_larger_tuning() -> None:
    assert order(finding("fuse", 30), finding("sync", 5, kind="mistake")) == ["sync", "fuse"]


def test_negligible_mistake_is_ranked_by_saving() -> None:
    assert order(finding("fuse", 30), finding("sync", 1.2, kind="mistake")) == ["fuse", "sync"]


def test_growing_cost_is_ranked_before_tuning() -> None:
    leak = finding("leak", 0, kind="mistake", grows=True)
    assert order(finding("fuse", 30), leak) == ["leak", "fuse"]
    assert order(finding("fuse", 30), leak, finding("sync", 5, kind="mistake"))[0] == "sync"


def test_larger_batch_is_first_only_without_other_findings() -> None:
    batch = finding("batch", 60, relative_to="samples")
    assert order(batch, finding("fuse", 2)) == ["fuse", "batch"]
    assert order(batch, finding("fuse", 0.2)) == ["batch", "fuse"]


def test_larger_batch_is_not_first_if_a_mistake_was_found() -> None:
    batch = finding("batch", 60, relative_to="samples")
    assert order(batch, finding("sync", 0.4, kind="mistake")) == ["sync", "batch"]
    assert order(batch, finding("sync", 0.01, kind="mistake")) == ["batch", "sync"]


def test_static_findings_are_ranked_after_measured_ones() -> None:
    read = finding("read", 40, kind="mistake", static=True)
    assert order(read, finding("fuse", 3)) == ["fuse", "read"]


def test_prerequisites_are_ranked_first() -> None:
    assert order(finding("fuse", 9), finding("loop", 4), loop=["fuse"]) == ["loop", "fuse"]


def test_saving_that_may_be_zero_is_ranked_by_expected_value() -> None:
    rows = ranked([finding("sure", 5), finding("maybe", 20, low=0.0)], wall_ns=100.0)
    assert [row.fault for row in rows] == ["maybe", "sure"]
    assert "may save nothing" in rows[0].remark
    assert rows[1].remark == ""


def test_savings_of_run_and_step_are_compared_over_the_whole_run() -> None:
    parts = [("import", 500.0), ("eval", 300.0), ("train", 200.0)]
    run = RunParts(
        wall_ns=1000.0,
        parts=[RunPart(name=name, ns=ns, share=ns / 1000) for name, ns in parts],  # type: ignore[arg-type]
        step_share=0.2,
    )
    evaluate = finding("evaluate", 250, kind="mistake", relative_to="run")
    sync = finding("sync", 50, kind="mistake")
    assert order(sync, evaluate, run=run) == ["evaluate", "sync"]


def test_saving_larger_than_its_group_is_explained() -> None:
    step = SimpleNamespace(
        account=SimpleNamespace(groups=lambda: {"compute": Group(ns=3e6)}),
        op_records=[SimpleNamespace(ns=9e6)],
        cpu_contention=1.0,
    )
    nothing = Edit()
    detection = Detection(
        low=nothing, expected=Edit.remove([0]), high=nothing, where=[], change="", assumes=""
    )
    fault = Fault(id="f", title="f", group="compute", document="", detect=lambda _: None)
    large, small = (Estimate(low=0, expected=ns, high=ns) for ns in (7e6, 2e6))
    words = faults._remark(fault, detection, large, step)  # type: ignore[arg-type]
    assert words.startswith("more than the 3.00 ms of compute: it acts on 9.00 ms of operators")
    assert words.endswith("and on the host time that issues them")
    step.cpu_contention = 3.0
    words = faults._remark(fault, detection, large, step)  # type: ignore[arg-type]
    assert words.endswith("and on their waiting for a CPU core")
    assert faults._remark(fault, detection, small, step) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "trainer, fixes, expected",
    [
        ("transformers", ["autocast"], "--bf16, or TrainingArguments(bf16=True)"),
        ("lightning", ["autocast"], 'Trainer(precision="bf16-mixed")'),
        ("lightning", ["fused"], None),  # in configure_optimizers, as in any script
        ("transformers", ["workers:all"], None),
        ("transformers", [], None),
        (None, ["autocast"], None),
    ],
)
def test_change_uses_terms_of_the_framework(
    trainer: str | None, fixes: list[str], expected: str | None
) -> None:
    evidence = StepEvidence(settings=ProgramSettings(trainer=trainer))
    step = SimpleNamespace(evidence=evidence)
    assert faults._in_framework_words(fixes, step) == expected  # type: ignore[arg-type]
