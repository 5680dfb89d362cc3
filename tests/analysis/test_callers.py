"""Lines divided by caller, and the sentence on the costliest line, on timelines made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from boundby.analysis.callers import with_callers
from boundby.analysis.line_advice import with_advice
from boundby.model import HostKind, Timeline
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding
from boundby.model.rows import CallerRow, LineRow, OpRow
from boundby.step.op_record import OpRecord
from tests.timelines import Scene

LINE = LineRow(where="net.py:9", ns=100.0, share=1.0, groups={"compute": 100.0})


@dataclass
class Calls:
    """Functions of a script that call each other, each with one operator inside at the end."""

    scene: Scene = field(default_factory=Scene)
    called: dict[int, str] = field(default_factory=dict)
    ops: list[tuple[int, float]] = field(default_factory=list)
    now: float = 0.0

    def call(self, *lines: str, ns: float = 1.0, outermost: str = "f0") -> None:
        """An operator in a function that is called through these lines, the outermost first."""
        start, end = self.now, self.now + 9
        for depth, line in enumerate(lines):
            at = start + depth
            name = f"f{depth}" if depth else outermost
            self.called[self.scene.on_host(at, end - depth, HostKind.PYTHON, name)] = line
        at = start + len(lines)
        row = self.scene.on_host(at, at + 0.5, HostKind.OP, "aten::mm")
        self.ops.append((row, ns))
        self.now += 10

    def divided(self) -> list[CallerRow]:
        timeline = self.scene.timeline()
        sources = ["net.py:9", "def", *dict.fromkeys(self.called.values())]
        count = len(timeline.host)
        source, called = np.zeros(count, np.int32), np.zeros(count, np.int32)
        for row, line in self.called.items():
            source[row], called[row] = 1, sources.index(line)
        host = msgspec.structs.replace(timeline.host, source=source, called=called)
        timeline = msgspec.structs.replace(timeline, host=host, sources=sources)
        return with_callers([LINE], self.records(), timeline)[0].callers

    def records(self) -> list[OpRecord]:
        return [
            OpRecord(
                name="aten::mm",
                op_class="contraction",
                bound="compute",
                ns=ns,
                exposed_ns=ns,
                row=row,
                source=0,
            )
            for row, ns in self.ops
        ]


def test_function_called_from_two_lines_has_two_callers() -> None:
    calls = Calls()
    calls.call("train.py:15", ns=3.0)
    calls.call("train.py:21", ns=1.0)
    assert calls.divided() == [
        CallerRow(where="train.py:15", ns=75.0, count=1),
        CallerRow(where="train.py:21", ns=25.0, count=1),
    ]


def test_outer_callers_distinguish_calls_with_the_same_inner_caller() -> None:
    calls = Calls()
    calls.call("train.py:15", "net.py:3")
    calls.call("train.py:15", "net.py:3")
    calls.call("train.py:21", "net.py:3", ns=2.0)
    assert calls.divided() == [
        CallerRow(where="train.py:15", ns=50.0, count=2),
        CallerRow(where="train.py:21", ns=50.0, count=1),
    ]


def test_function_with_one_caller_names_the_innermost_line() -> None:
    calls = Calls()
    calls.call("train.py:15", "net.py:3")
    calls.call("train.py:15", "net.py:3")
    assert calls.divided() == [CallerRow(where="net.py:3", ns=100.0, count=2)]


def test_module_of_the_script_has_no_caller() -> None:
    """Whatever runs it, as boundby's command line, is not the script's."""
    calls = Calls()
    calls.call("click/core.py:911", outermost="train.py(7): <module>")
    assert calls.divided() == []
    calls.call("click/core.py:911", "train.py:7", outermost="train.py(7): <module>")
    assert [row.where for row in calls.divided()] == ["train.py:7"]


def test_trace_without_callers_leaves_lines_unchanged() -> None:
    timeline: Timeline = Scene().timeline()
    assert with_callers([LINE], Calls().records(), timeline) == [LINE]


def test_costliest_line_gets_advice_and_its_finding() -> None:
    ops = [
        OpRow(
            name="aten::mm",
            op_class="contraction",
            where="net.py:9",
            count=2,
            ns=90,
            bound="compute",
        )
    ]
    finding = Finding(
        fault="float32-products",
        title="Float32 products",
        group="compute",
        where=["net.py:9"],
        saving_ns=Estimate(low=10, expected=20, high=30),
        change="",
    )
    outside = msgspec.structs.replace(LINE, where="unknown")
    lines = with_advice([outside, LINE, LINE], ops, [finding])
    assert [bool(row.advice) for row in lines] == [False, True, False]
    assert "aten::mm" in lines[1].advice
    assert "Finding 1 is about it: float32 products." in lines[1].advice
    fused = msgspec.structs.replace(
        finding, title="Unfused", saving_ns=Estimate(low=0, expected=2, high=30)
    )
    assert "Finding 2 is about it: float32" in with_advice([LINE], ops, [fused, finding])[0].advice
    assert "about a small part of it: unfused." in with_advice([LINE], ops, [fused])[0].advice


def test_advice_names_line_at_roofline_and_line_without_fix() -> None:
    near = msgspec.structs.replace(LINE, floor_ns=80.0)
    assert "near the roofline" in with_advice([near], [], [])[0].advice
    assert "boundby knows no fix" in with_advice([LINE], [], [])[0].advice


def test_operators_without_time_are_not_named() -> None:
    """A step that waits for a core may leave its kernels no time at all."""
    op = OpRow(
        name="mm", op_class="contraction", where=LINE.where, count=1, ns=0.0, bound="compute"
    )
    idle = msgspec.structs.replace(LINE, ns=0.0)
    for line in (LINE, idle):
        assert "take nearly none of its time" in with_advice([line], [op], [])[0].advice
