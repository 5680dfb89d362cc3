"""The verbose terminal report of a diagnosis."""

from __future__ import annotations

import msgspec
import pytest

from boundby.model.diagnosis import Diagnosis, KindOfStep
from boundby.model.estimate import Estimate
from boundby.model.finding import BatchRow
from boundby.model.rows import NO_LINE, LineRow
from boundby.report.findings import title_of
from boundby.report.terminal import as_text
from tests.diagnoses import real_diagnosis


def all_text(diagnosis: Diagnosis) -> str:
    return as_text(diagnosis, verbose=True)


def test_finding_below_one_percent_is_only_named() -> None:
    diagnosis = real_diagnosis()
    first, second = diagnosis.findings[:2]
    small = Estimate(low=0.0, expected=0.002 * diagnosis.step.wall_ns, high=2e6)
    findings = [first, msgspec.structs.replace(second, saving_ns=small)]
    text = all_text(msgspec.structs.replace(diagnosis, findings=findings))
    assert f"1. {title_of(first)}: " in text
    assert f"below 1% of the step: {second.fault} (up to 2.00 ms)" in text
    assert f"[{second.fault}]" not in text
    assert second.assumes not in text


def test_report_without_findings_says_so_and_shows_larger_batches() -> None:
    twice = Estimate(low=1.9e7, expected=2e7, high=2e7)
    larger = BatchRow(factor=2, wall_ns=twice, saving_ns=Estimate(low=0.0, expected=0.0, high=0.0))
    diagnosis = msgspec.structs.replace(real_diagnosis(), findings=[], what_if=[], batches=[larger])
    text = all_text(diagnosis)
    assert "no known fault was found" in text
    wall = diagnosis.step.wall_ns
    times, low, high = (f"{ns / wall:.2f}" for ns in (2e7, 1.9e7, 2e7))
    assert f"2x the batch takes {times}x the time ({low} to {high})" in text
    assert "no known fault" not in all_text(msgspec.structs.replace(diagnosis, batches=[]))


def test_saving_of_a_larger_batch_is_a_share_of_its_samples_time() -> None:
    diagnosis = real_diagnosis()
    wall = diagnosis.step.wall_ns
    half = Estimate(low=0.4 * wall, expected=0.5 * wall, high=0.5 * wall)
    larger = msgspec.structs.replace(diagnosis.findings[0], saving_ns=half, relative_to="samples")
    text = " ".join(all_text(msgspec.structs.replace(diagnosis, findings=[larger])).split())
    assert "50% of the time for the same samples" in text
    assert "50% of the step" not in text


def test_library_lines_follow_the_script_line_that_calls_them() -> None:
    diagnosis = real_diagnosis()
    first = diagnosis.lines[0]
    inner = LineRow(where="models/bert.py:163", text="scores = q @ k", ns=5e6, share=0.34)
    small = LineRow(where="models/bert.py:7", text="x = x + 1", ns=1e4, share=0.0007)
    lines = [msgspec.structs.replace(first, inside=[inner, small]), *diagnosis.lines[1:]]
    text = all_text(msgspec.structs.replace(diagnosis, lines=lines))
    shown = text[text.index("source lines") :].splitlines()
    at = next(number for number, line in enumerate(shown) if f" {first.where} " in f"{line} ")
    assert "  bert.py:163" in shown[at + 1]
    assert "scores = q @ k" in shown[at + 1]
    assert not any("bert.py:7 " in line for line in shown)


def line(where: str, ns: float, **parts: float) -> LineRow:
    groups = {"overhead": sum(parts.values()), "compute": ns - sum(parts.values())}
    return LineRow(where=where, ns=ns, share=ns / 10e6, groups=groups, parts=parts)


def lines_table(lines: list[LineRow]) -> str:
    text = all_text(msgspec.structs.replace(real_diagnosis(), lines=lines))
    return text[text.index("source lines") :] if "source lines" in text else ""


def test_overhead_line_shows_its_cause_and_short_lines_are_summed() -> None:
    lines = [
        line("train.py:3", 4e6, sync=3e6, python=0.5e6),
        line("train.py:4", 3e6, small_kernels=1e6),
        line(NO_LINE, 2e6, python=2e6),
        *(line(f"train.py:{number}", 0.04e6, python=0.04e6) for number in range(10, 35)),
    ]
    rows = [" ".join(row.split()) for row in lines_table(lines).splitlines()]
    assert rows[1].startswith("overhead: sync 4.00 ms 40% train.py:3")
    assert rows[2].startswith("compute 67% 3.00 ms 30% train.py:4")
    assert rows[3].startswith("overhead: Python 2.00 ms 20% (outside the script)")
    assert rows[4] == "1.00 ms 10% 25 more lines"


def test_trace_without_source_lines_has_no_line_table() -> None:
    assert not lines_table([line(NO_LINE, 10e6, python=10e6)])


@pytest.mark.parametrize(
    ("kind", "count", "words"),
    [
        ("train 4x8 with 5 evaluation calls", 1, "train 4x8 with 5 evaluation calls: 1 step of"),
        ("forward 1x16", 3, "forward 1x16: 3 steps of 5.00 ms"),
        ("step", 2, "other steps: 2 steps of 5.00 ms"),
    ],
)
def test_other_steps_are_counted_with_correct_plural(kind: str, count: int, words: str) -> None:
    diagnosis = real_diagnosis()
    other = KindOfStep(kind=kind, steps=count, wall_ns=5e6)
    step = msgspec.structs.replace(diagnosis.step, others=[other], samples_ns=[7e6])
    text = all_text(msgspec.structs.replace(diagnosis, step=step))
    assert words in text
    assert "(1 clean step)" in " ".join(text.split())


@pytest.mark.parametrize("share", [0.9, 0.3])
def test_line_that_is_most_of_the_step_is_divided_by_module(share: float) -> None:
    diagnosis = real_diagnosis()
    wall = diagnosis.step.wall_ns
    whole = LineRow(where="train.py:7", ns=share * wall, share=share, groups={"compute": wall})
    parts = [("Linear_0", 0.2), ("Linear_1", 0.2), ("Dropout_0", 0.1), ("LayerNorm_0", 0.1)]
    modules = [
        LineRow(where=f"Net_0.Layer_3.{name}", ns=part * wall, share=part, groups={"compute": wall})
        for name, part in parts
    ]
    text = all_text(msgspec.structs.replace(diagnosis, lines=[whole], modules=modules))
    shown = [" ".join(line.split()) for line in text.splitlines()]
    found = [line for line in shown if "Layer.Linear" in line]
    assert bool(found) is (share > 0.5)
    if found:
        assert "40%" in found[0] and "2 modules" in found[0]
