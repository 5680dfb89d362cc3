"""A comparison on a terminal of fixed width, without colours."""

import msgspec

from boundby.analysis.comparison import compare
from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import LineRow
from boundby.report.comparison import as_text
from tests.analysis.test_comparison import around, with_steps
from tests.diagnoses import real_diagnosis


def test_verdict_of_a_comparison_is_the_first_line() -> None:
    before, after = with_steps(around(10e6, 0.01)), with_steps(around(12e6, 0.01))
    text = as_text(compare(before, after, names=("old.json", "new.json")))
    assert text.splitlines()[0].startswith("20.0% slower: 10.0 ms to 12.0 ms, beyond noise (+10.5%")
    assert "before: old.json" in text
    back = as_text(compare(after, before, names=("new.json", "old.json")))
    assert back.splitlines()[0].startswith("16.7% faster")


def test_slowdowns_come_first_and_names_are_not_markup() -> None:
    before = real_diagnosis()
    evil = "[/red] [bold]x :smile: " + "a_name_too_long_for_any_table_" * 4
    rows = [msgspec.structs.replace(row, ns=row.ns + 1e6 * n) for n, row in enumerate(before.ops)]
    rows[-1] = msgspec.structs.replace(rows[-1], name=evil)
    after = msgspec.structs.replace(before, ops=rows)
    lines = as_text(compare(before, after, names=("a", "b"))).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("operators"))
    assert lines[first + 1].startswith("[/red] [bold]x :smile:")
    assert all("ms" in line or "us" in line for line in lines[first + 1 : first + 5])
    assert "+" in lines[first + 1]


def test_changed_modules_are_listed_below_those_they_are_in() -> None:
    """The parent's change is small, because two of its parts cancel; the unchanged one is left
    out."""

    def side(*ns: float) -> Diagnosis:
        paths = ("Net_0.Block_0.Linear_0", "Net_0.Block_0.Norm_0", "Net_0.Head_0")
        rows = [
            LineRow(where=where, ns=each, share=0.1) for where, each in zip(paths, ns, strict=True)
        ]
        return msgspec.structs.replace(real_diagnosis(), modules=rows)

    made = compare(side(4e6, 5e6, 1e6), side(7e6, 2e6, 1e6), names=("a", "b"))
    lines = as_text(made).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("modules"))
    names = [line[:12].rstrip() for line in lines[first + 1 : first + 5]]
    assert names == ["Net", "  Block", "    Linear", "    Norm"]
    assert len(lines) == first + 5


def test_long_source_lines_are_cut_before_figures() -> None:
    before = real_diagnosis()
    long = [
        msgspec.structs.replace(row, text="weights = " + "f(x) + " * 40) for row in before.lines
    ]
    slower = [msgspec.structs.replace(row, ns=row.ns + 1e6) for row in long]
    before = msgspec.structs.replace(before, lines=long)
    after = msgspec.structs.replace(before, lines=slower)
    lines = as_text(compare(before, after, names=("a", "b"))).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("source lines"))
    assert lines[first].split() == ["source", "lines", "before", "after", "change"]
    assert "+1.00 ms" in lines[first + 1]
    assert lines[first + 1].rstrip().endswith("…")


def test_diagnosis_compared_with_itself_reports_no_difference() -> None:
    one = with_steps([49e3, 9.3e6])
    lines = as_text(compare(one, one, names=("a", "a"))).splitlines()
    assert lines[0].endswith("no difference: both are the same diagnosis")
    given = msgspec.structs.replace(one, step=msgspec.structs.replace(one.step, samples_ns=[]))
    assert "step" not in as_text(compare(given, one, names=("a", "a"))).splitlines()[1]


def test_control_characters_of_file_names_are_removed() -> None:
    one = real_diagnosis()
    text = as_text(compare(one, one, names=("evil\x1b[2J\x07.json", "b\x9b.json")))
    assert not any(character in text for character in "\x1b\x07\x9b")
    assert "before: evil?[2J" in text


def test_estimated_steps_are_compared_by_their_ranges() -> None:
    def estimated(low: float, middle: float, high: float) -> Diagnosis:
        one = with_steps([middle * 1e6])
        step = msgspec.structs.replace(
            one.step,
            wall_source="profiled",
            wall_ns=middle * 1e6,
            wall_interval_ns=(low * 1e6, high * 1e6),
            samples_ns=[],
        )
        return msgspec.structs.replace(one, step=step)

    before, near, far = estimated(8, 10, 12), estimated(7, 9, 11), estimated(1, 2, 3)
    first = as_text(compare(before, near, names=("a", "b"))).splitlines()[0]
    assert "estimated without the profiler" in first and first.endswith(", ranges overlap")
    first = as_text(compare(before, far, names=("a", "b"))).splitlines()[0]
    assert first.endswith(", ranges do not overlap")
