"""Two diagnoses side by side, and whether the difference is one."""

import msgspec
import pytest

from boundby.analysis.comparison import compare
from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import CallerRow, LineRow
from tests.diagnoses import full_diagnosis, real_diagnosis

replace = msgspec.structs.replace


def with_steps(samples: list[float], **changes: object) -> Diagnosis:
    diagnosis = real_diagnosis()
    middle = sorted(samples)[len(samples) // 2]
    step = replace(diagnosis.step, wall_ns=middle, samples_ns=samples, **changes)
    return replace(diagnosis, step=step)


def with_lines(*rows: tuple[str, str | None, float]) -> Diagnosis:
    lines = [LineRow(where=where, text=text, ns=ns, share=0.1) for where, text, ns in rows]
    return replace(real_diagnosis(), lines=lines)


def around(middle: float, spread: float) -> list[float]:
    return [middle * (1 + spread * offset) for offset in (-1, -0.6, -0.3, 0, 0.1, 0.4, 0.7, 0.9, 1)]


def test_a_difference_beyond_noise_is_distinguished_from_one_within() -> None:
    before = with_steps(around(10e6, 0.02))
    slower = compare(before, with_steps(around(11e6, 0.02)), names=("a", "b"))
    assert slower.beyond_noise is True
    assert slower.slowdown == pytest.approx(0.1)
    assert slower.ratio.low < 1.1 < slower.ratio.high
    noisy = compare(before, with_steps(around(10.2e6, 0.2)), names=("a", "b"))
    assert noisy.beyond_noise is False
    again = compare(before, before, names=("a", "a"))
    assert again.beyond_noise is False
    assert again.slowdown == 0


def test_unknown_profiler_overhead_is_noise() -> None:
    """Two captures of one program: the profiled steps of each are alike, their overheads not."""
    quick = {"wall_source": "profiled", "wall_interval_ns": (50e6, 90e6)}
    slow = {"wall_source": "profiled", "wall_interval_ns": (60e6, 190e6)}
    before = with_steps(around(66e6, 0.02), **quick)
    made = compare(before, with_steps(around(110e6, 0.02), **slow), names=("a", "b"))
    assert made.beyond_noise is False
    made = compare(
        before,
        with_steps(around(600e6, 0.02), **slow | {"wall_interval_ns": (5e8, 7e8)}),
        names=("a", "b"),
    )
    assert made.beyond_noise is True


def test_single_steps_leave_noise_unknown() -> None:
    made = compare(with_steps([10e6]), with_steps([20e6]), names=("a", "b"))
    assert made.beyond_noise is None
    assert made.slowdown == 1


def test_steps_without_a_duration_leave_noise_unknown() -> None:
    for samples in ([0.0, 0.0, 5e6], [0.0] * 7):
        made = compare(with_steps([10e6] * 9), with_steps(samples), names=("a", "b"))
        assert made.beyond_noise is None


def test_given_step_time_has_no_samples() -> None:
    """With `--wall` the steps of a trace are profiled ones, and say nothing about it."""
    given = real_diagnosis()
    assert given.step.samples_ns == []
    other = replace(given, target="another file")
    made = compare(given, other, names=("a", "a"))
    assert made.beyond_noise is None
    assert made.before.samples_ns == []


def test_group_changes_add_up_to_the_step_change() -> None:
    diagnosis = real_diagnosis()
    account = diagnosis.account
    overhead = replace(
        account.overhead,
        ns=account.overhead.ns + 2e6,
        parts=account.overhead.parts | {"sync": account.overhead.parts["sync"] + 2e6},
    )
    after = replace(diagnosis, account=replace(account, overhead=overhead))
    made = compare(diagnosis, after, names=("a", "b"))
    whole = [row for row in made.groups if not row.detail]
    assert sum(row.delta_ns for row in whole) == pytest.approx(2e6)
    (sync,) = (row for row in made.groups if row.detail == "sync")
    assert sync.name == "overhead"
    assert sync.delta_ns == pytest.approx(2e6)


def test_operators_are_matched_when_their_lines_move() -> None:
    before = real_diagnosis()
    moved = [replace(row, where="elsewhere.py:1", ns=2 * row.ns) for row in before.ops]
    made = compare(before, replace(before, ops=moved[1:]), names=("a", "b"))
    gone = before.ops[0]
    (row,) = (row for row in made.ops if (row.name, row.detail) == (gone.name, gone.shapes))
    assert row.delta_ns == min(row.delta_ns for row in made.ops)
    assert made.ops[0].delta_ns > 0
    deltas = [row.delta_ns for row in made.ops]
    assert deltas == sorted(deltas, reverse=True)


def test_lines_with_device_time_only_are_compared_with_a_warning() -> None:
    wall_ns = real_diagnosis().step.wall_ns
    older, whole = (
        with_lines(("a.py:1", "f()", wall_ns / 5)),
        with_lines(("a.py:1", "f()", wall_ns)),
    )
    for pair, warned in (((older, whole), True), ((older, older), False), ((whole, whole), False)):
        warnings = compare(*pair, names=("a", "b")).warnings
        assert any("an older boundby" in line for line in warnings) is warned


def test_lines_are_matched_by_text_when_they_have_moved() -> None:
    before = with_lines(
        ("a.py:1", "x = f(x)", 5e6), ("a.py:2", "y = g(x)", 3e6), ("a.py:9", "old()", 1e6)
    )
    after = with_lines(
        ("a.py:3", "x = f(x)", 6e6), ("a.py:2", "y = g(x)", 3e6), ("b.py:1", "new()", 2e6)
    )
    rows = {row.name: row for row in compare(before, after, names=("a", "b")).lines}
    assert rows["a.py:3"].detail == "was a.py:1"
    assert rows["a.py:3"].delta_ns == 1e6
    assert rows["a.py:2"].delta_ns == 0
    assert (rows["a.py:9"].detail, rows["a.py:9"].after_ns) == ("gone", None)
    assert (rows["b.py:1"].detail, rows["b.py:1"].before_ns) == ("new", None)


def named(where: str, function: str | None, text: str | None, ns: float) -> LineRow:
    return LineRow(where=where, function=function, text=text, ns=ns, share=0.1)


def test_lines_are_matched_in_a_renamed_file() -> None:
    before = [
        named("train.py:10", "Block.forward", "x = self.act(x)", 5e6),
        named("train.py:20", "Head.forward", "x = self.act(x)", 3e6),
        named("train.py:30", None, "loss.backward()", 2e6),
        named("train.py:31", None, "opt.step()", 1e6),
        named("train.py:40", "log", "print(loss.item())", 1e6),
    ]
    after = [
        named("new/fit.py:12", "Head.forward", "x = self.act(x)", 3e6),
        named("new/fit.py:22", "Block.forward", "x = self.act(x)", 6e6),
        named("new/fit.py:30", None, "loss.backward()", 2e6),
        named("new/fit.py:31", None, "optimizer.step()", 1e6),
        named("new/fit.py:44", "show", "print(loss)", 4e6),
    ]
    diagnosis = real_diagnosis()
    made = compare(
        replace(diagnosis, lines=before), replace(diagnosis, lines=after), names=("a", "b")
    )
    read_profiler_tree = {row.name: (row.detail, row.delta_ns) for row in made.lines}
    assert read_profiler_tree == {
        "new/fit.py:22": ("was train.py:10", 1e6),
        "new/fit.py:12": ("was train.py:20", 0),
        "new/fit.py:30": ("was train.py:30", 0),
        # Its text has changed too: it stands where it stood in what the file is called now.
        "new/fit.py:31": ("was train.py:31", 0),
        "new/fit.py:44": ("new", 4e6),
        "train.py:40": ("gone", -1e6),
    }


def test_repeated_text_does_not_match_lines_across_files() -> None:
    before = with_lines(("a.py:1", "x = f(x)", 5e6), ("a.py:9", "x = f(x)", 5e6))
    after = with_lines(("b.py:4", "x = f(x)", 5e6))
    read_profiler_tree = {
        row.name: row.detail for row in compare(before, after, names=("a", "b")).lines
    }
    assert read_profiler_tree == {"a.py:1": "gone", "a.py:9": "gone", "b.py:4": "new"}


def test_lines_without_text_are_matched_by_their_place() -> None:
    before, after = with_lines(("a.py:1", None, 5e6)), with_lines(("a.py:1", "x = 1", 4e6))
    (row,) = compare(before, after, names=("a", "b")).lines
    assert row.delta_ns == -1e6


def test_modules_are_compared_as_a_tree_of_their_kinds() -> None:
    """Two layers of 4 and 6 ms, of which one linear layer of the second is slower: 3 ms more."""

    def side(slower: float) -> Diagnosis:
        modules = [
            ("Model_0.Layer_0.Linear_0", 4e6),
            ("Model_0.Layer_1.Linear_1", 5e6 + slower),
            ("Model_0.Layer_1.Norm_0", 1e6),
            ("unknown", 7e6),
        ]
        rows = [LineRow(where=where, ns=ns, share=0.1) for where, ns in modules]
        return replace(real_diagnosis(), modules=rows)

    made = compare(side(0), side(3e6), names=("a", "b"))
    assert [(row.depth, row.name, row.before_ns, row.delta_ns) for row in made.modules] == [
        (0, "Model", 10e6, 3e6),
        (1, "Layer", 10e6, 3e6),
        (2, "Linear", 9e6, 3e6),
        (2, "Norm", 1e6, 0),
    ]


def test_a_line_is_compared_by_what_calls_it() -> None:
    def side(evaluating: float) -> Diagnosis:
        callers = [
            CallerRow(where="train.py:8", ns=5e6, count=1),
            CallerRow(where="train.py:9", ns=evaluating, count=1),
        ]
        line = LineRow(where="model.py:3", ns=5e6 + evaluating, share=1.0, callers=callers)
        return replace(real_diagnosis(), lines=[line])

    made = compare(side(1e6), side(4e6), names=("a", "b"))
    assert [(row.name, row.delta_ns) for row in made.paths] == [
        ("train.py:9 > model.py:3", 3e6),
        ("train.py:8 > model.py:3", 0),
    ]


def test_diagnoses_of_two_machines_are_compared_with_a_warning() -> None:
    before, after = real_diagnosis(), full_diagnosis()
    assert not any("machines" in line for line in compare(before, after, names=("", "")).warnings)
    other = replace(after, machine=replace(after.machine, device="Round 2"))
    warnings = compare(before, other, names=("", "")).warnings
    assert any("Round 1 and Round 2" in line for line in warnings)


def test_different_timing_methods_give_a_warning() -> None:
    samples = around(10e6, 0.01)
    profiled = with_steps(samples, wall_source="profiled")
    mixed = compare(with_steps(samples), profiled, names=("", ""))
    assert any("clean, the other profiled" in line for line in mixed.warnings)
    numbered = [
        with_steps(samples, kind=f"ProfilerStep#{number}", series="ProfilerStep")
        for number in (1, 2)
    ]
    assert compare(*numbered, names=("", "")).warnings == []
    other = compare(
        with_steps(samples, kind="train 4x8", series="train 4x8"), numbered[0], names=("", "")
    )
    assert any("train 4x8 and ProfilerStep" in line for line in other.warnings)
    both = compare(profiled, profiled, names=("", ""))
    assert any("under a profiler" in line for line in both.warnings)


def waiting(diagnosis: Diagnosis, share: float) -> Diagnosis:
    """The same step, made longer by waiting for a core."""
    wall = diagnosis.step.wall_ns / (1 - share)
    account = diagnosis.account
    parts = {**account.overhead.parts, "core": share * wall}
    overhead = replace(account.overhead, ns=account.overhead.ns + share * wall, parts=parts)
    samples = [ns / (1 - share) for ns in diagnosis.step.samples_ns]
    step = replace(diagnosis.step, wall_ns=wall, samples_ns=samples)
    return replace(diagnosis, step=step, account=replace(account, overhead=overhead))


def test_cpu_wait_time_is_not_compared() -> None:
    quiet = with_steps(around(10e6, 0.02))
    made = compare(quiet, waiting(quiet, 0.10), names=("a", "b"))
    assert made.slowdown == pytest.approx(0)
    assert made.beyond_noise is False
    assert not any(row.detail == "core" for row in made.groups)
    overhead = next(row for row in made.groups if row.name == "overhead" and not row.detail)
    assert overhead.delta_ns == pytest.approx(0, abs=1)


def test_run_on_a_busy_machine_has_no_verdict() -> None:
    quiet = with_steps(around(10e6, 0.02))
    made = compare(quiet, waiting(with_steps(around(20e6, 0.02)), 0.6), names=("a", "b"))
    assert made.beyond_noise is None
    assert "B waited for a core for 60% of its steps" in made.refused


def test_different_thread_count_is_reported() -> None:
    before = with_steps(around(10e6, 0.02))
    one, two = (
        replace(before, machine=replace(before.machine, threads=threads)) for threads in (1, 2)
    )
    assert "different thread counts: 1 and 2" in " ".join(
        compare(one, two, names=("a", "b")).warnings
    )


def test_diagnosis_compared_with_itself_has_no_difference() -> None:
    """Its own steps may differ by any factor: an empty one of 49 us beside one of 9.3 ms."""
    one = with_steps([49e3, 9.3e6])
    found = compare(one, one, names=("a", "a"))
    assert found.same
    assert (found.ratio.low, found.ratio.expected, found.ratio.high) == (1.0, 1.0, 1.0)
    assert found.beyond_noise is False
    assert not compare(one, with_steps([50e3, 9.3e6]), names=("a", "b")).same
