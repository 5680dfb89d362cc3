"""The lab's results as a table, as plots, as a page: nothing a name can break."""

import io
import math
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from boundby.model.lab import (
    Axis,
    Bar,
    Bars,
    LabReport,
    Lines,
    Mark,
    Measurement,
    Plot,
    Prediction,
    Result,
    Series,
)
from boundby.report import plot
from boundby.report.lab import ExperimentList, LabTable, headline
from boundby.report.lab_page import page
from tests.machines import round_machine

NASTY = "<script>alert('1 & 2')</script> [bold]\"x\""


def lines(*, log: bool = True) -> Lines:
    return Lines(
        title=NASTY,
        x=Axis(name="size", log=log),
        y=Axis(name="rate", unit="FLOP/s", log=log),
        series=[
            Series(name="measured", points=[(1, 1e12), (10, 1e13), (1000, 5e13)]),
            Series(name="law", points=[(1, 2e12), (1000, 5e13)], predicted=True),
        ],
        marks=[Mark(x=50, name="found"), Mark(x=45, name="predicted", predicted=True)],
    )


def bars() -> Bars:
    return Bars(
        title="bars",
        axis=Axis(name="time", unit="ns", log=False),
        bars=[Bar(name=NASTY, value=2e6, low=1e6, high=3e6), Bar(name="plain", value=1e6)],
    )


def report() -> LabReport:
    held = Result(
        name="fusion",
        title="Fusion",
        claim=NASTY,
        outcome="held",
        predicted={"one": Prediction(low=0.4, value=0.5, high=0.6, what="one pass", unit="ns")},
        measured={
            "one": Measurement(
                low=0.5, value=0.55, high=0.6, what="one pass", unit="ns", held=True
            ),
            "disk": Measurement(low=1e9, value=1e9, high=1e9, what="disk", unit="B/s"),
        },
        held=True,
        why="as predicted",
        plots=[lines(), bars()],
    )
    failed = Result(
        name="shard", title="Sharding", claim="c", outcome="failed", why="RuntimeError: [no] link"
    )
    return LabReport(machine=round_machine(), results=[held, failed], run_at="2026-01-01")


@pytest.mark.parametrize(
    "drawn", [lines(), lines(log=False), bars()], ids=["log", "linear", "bars"]
)
def test_plots_are_well_formed_and_escape_text(drawn: Plot) -> None:
    for text in (plot.render(drawn), plot.standalone(drawn)):
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert "<script" not in text
        for element in root.iter():
            for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
                if key in element.attrib:
                    assert math.isfinite(float(element.attrib[key]))


def test_plot_without_points_states_it() -> None:
    empty = Lines(title="t", x=Axis(name="x"), y=Axis(name="y"), series=[])
    assert "no points" in plot.render(empty)


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (1, 1000, True, [1, 10, 100, 1000]),
        (3, 60, True, [5, 10, 20, 50]),
    ],
)
def test_ticks_are_round(low: float, high: float, log: bool, expected: list[float]) -> None:
    assert plot.ticks(low, high, log=log) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(1e11, "FLOP/s", "100 GFLOP/s"), (2e6, "ns", "2 ms"), (0.5, "x", "0.5x"), (20, "", "20")],
)
def test_tick_labels_have_no_trailing_zeros(value: float, unit: str, words: str) -> None:
    assert plot.label(value, unit) == words


def test_the_page_is_one_file_without_script() -> None:
    text = page(report())
    assert "<script" not in text
    assert 'http-equiv="Content-Security-Policy"' in text
    assert "default-src &#x27;none&#x27;" in text
    assert " style=" not in text
    for address in ("http:", "https:", "src="):
        assert address not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_table_states_which_laws_held_and_why() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None, highlight=False)
    console.print(LabTable(report()))
    written = console.file
    assert isinstance(written, io.StringIO)
    text = written.getvalue()
    assert text.startswith("1 of 2 claims held on this machine; failed: shard")
    assert "RuntimeError: [no] link" in text
    assert "400 to 600 ps" in text


def test_list_shows_every_experiment() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(ExperimentList([("fusion", "what it shows", "the claim")]))
    written = console.file
    assert isinstance(written, io.StringIO)
    assert "the claim" in written.getvalue()


def test_interrupted_run_states_it() -> None:
    assert headline(LabReport(machine=round_machine(), interrupted=True)).endswith("(interrupted)")
