"""What the terminal says of a diagnosis."""

from __future__ import annotations

import msgspec
import pytest

from boundby.model.diagnosis import NO_LINE, BatchRow, Estimate, KindOfStep, LineRow
from boundby.report.terminal import as_text
from tests.diagnoses import real_diagnosis


def test_a_finding_that_promises_next_to_nothing_is_named_not_explained() -> None:
    diagnosis = real_diagnosis()
    first, second = diagnosis.findings[:2]
    slight = Estimate(low=0.0, expected=0.002 * diagnosis.step.wall_ns, high=2e6)
    findings = [first, msgspec.structs.replace(second, saving_ns=slight)]
    said = as_text(msgspec.structs.replace(diagnosis, findings=findings))
    assert f"1. {first.fault} would save" in said
    assert f"expected to save less than 1%: {second.fault} (up to 2.00 ms)" in said
    assert f"{second.fault} would save" not in said
    assert second.assumes not in said


def test_where_nothing_helps_that_is_said_and_what_a_larger_batch_takes() -> None:
    twice = Estimate(low=1.9e7, expected=2e7, high=2e7)
    larger = BatchRow(factor=2, wall_ns=twice, saving_ns=Estimate(low=0.0, expected=0.0, high=0.0))
    diagnosis = msgspec.structs.replace(real_diagnosis(), findings=[], what_if=[], batches=[larger])
    said = as_text(diagnosis)
    assert "nothing that boundby knows of" in said
    wall = diagnosis.step.wall_ns
    times, low, high = (f"{ns / wall:.2f}" for ns in (2e7, 1.9e7, 2e7))
    assert f"a batch 2x as large {times}x the time ({low} to {high})" in said
    assert "nothing that" not in as_text(msgspec.structs.replace(diagnosis, batches=[]))


def test_a_larger_batch_saves_no_part_of_the_step_but_of_what_its_samples_take() -> None:
    diagnosis = real_diagnosis()
    wall = diagnosis.step.wall_ns
    half = Estimate(low=0.4 * wall, expected=0.5 * wall, high=0.5 * wall)
    larger = msgspec.structs.replace(
        diagnosis.findings[0], saving_ns=half, out_of="what the same samples take"
    )
    said = " ".join(as_text(msgspec.structs.replace(diagnosis, findings=[larger])).split())
    assert "50% of what the same samples take" in said
    assert "50% of the step" not in said


def test_lines_of_libraries_stand_under_the_line_that_led_to_them() -> None:
    diagnosis = real_diagnosis()
    first = diagnosis.lines[0]
    inner = LineRow(where="models/bert.py:163", text="scores = q @ k", ns=5e6, share=0.34)
    slight = LineRow(where="models/bert.py:7", text="x = x + 1", ns=1e4, share=0.0007)
    lines = [msgspec.structs.replace(first, inside=[inner, slight]), *diagnosis.lines[1:]]
    said = as_text(msgspec.structs.replace(diagnosis, lines=lines))
    shown = said[said.index("source lines") :].splitlines()
    at = next(number for number, line in enumerate(shown) if f" {first.where} " in line)
    assert "  bert.py:163" in shown[at + 1]
    assert "scores = q @ k" in shown[at + 1]
    assert not any("bert.py:7 " in line for line in shown)


def line(where: str, ns: float, **parts: float) -> LineRow:
    groups = {"overhead": sum(parts.values()), "compute": ns - sum(parts.values())}
    return LineRow(where=where, ns=ns, share=ns / 10e6, groups=groups, parts=parts)


def said_of(lines: list[LineRow]) -> str:
    said = as_text(msgspec.structs.replace(real_diagnosis(), lines=lines))
    return said[said.index("source lines") :] if "source lines" in said else ""


def test_a_line_of_overhead_says_what_it_is_and_the_rest_is_one_row() -> None:
    lines = [
        line("train.py:3", 4e6, sync=3e6, python=0.5e6),
        line("train.py:4", 3e6, small_kernels=1e6),
        line(NO_LINE, 2e6, python=2e6),
        *(line(f"train.py:{number}", 0.04e6, python=0.04e6) for number in range(10, 35)),
    ]
    rows = [" ".join(row.split()) for row in said_of(lines).splitlines()]
    assert rows[1].startswith("overhead: sync 4.00 ms 40% train.py:3")
    assert rows[2].startswith("compute 3.00 ms 30% train.py:4")
    assert rows[3].startswith("overhead: Python 2.00 ms 20% (no line of the script)")
    assert rows[4] == "1.00 ms 10% 25 more lines"


def test_a_trace_without_any_line_has_no_table_of_lines() -> None:
    assert not said_of([line(NO_LINE, 10e6, python=10e6)])


@pytest.mark.parametrize(
    ("kind", "count", "words"),
    [
        ("train 4x8 with 5 evaluation calls", 1, "train 4x8 with 5 evaluation calls: 1 step of"),
        ("forward 1x16", 3, "forward 1x16: 3 steps of 5.00 ms"),
        ("step", 2, "also seen: 2 steps of 5.00 ms"),
    ],
)
def test_steps_are_counted_as_one_would(kind: str, count: int, words: str) -> None:
    diagnosis = real_diagnosis()
    other = KindOfStep(kind=kind, steps=count, wall_ns=5e6)
    step = msgspec.structs.replace(diagnosis.step, others=[other], samples_ns=[7e6])
    said = as_text(msgspec.structs.replace(diagnosis, step=step))
    assert words in said
    assert ", 1 clean step)" in " ".join(said.split())


@pytest.mark.parametrize("share", [0.9, 0.3])
def test_a_line_that_is_most_of_the_step_is_divided_by_its_modules(share: float) -> None:
    diagnosis = real_diagnosis()
    wall = diagnosis.step.wall_ns
    whole = LineRow(where="train.py:7", ns=share * wall, share=share, groups={"compute": wall})
    parts = [("Linear_0", 0.2), ("Linear_1", 0.2), ("Dropout_0", 0.1), ("LayerNorm_0", 0.1)]
    modules = [
        LineRow(where=f"Net_0.Layer_3.{name}", ns=part * wall, share=part, groups={"compute": wall})
        for name, part in parts
    ]
    said = as_text(msgspec.structs.replace(diagnosis, lines=[whole], modules=modules))
    shown = [" ".join(line.split()) for line in said.splitlines()]
    found = [line for line in shown if "Layer.Linear" in line]
    assert bool(found) is (share > 0.5)
    if found:
        assert "40%" in found[0] and "2 of them" in found[0]
