"""The default terminal report: one screen, without trailing blanks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from boundby.model import Machine, Note
from boundby.model.account import Account, Group, Utilisation, Verdict
from boundby.model.diagnosis import Diagnosis, StepTimes
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding, WhatIf
from boundby.model.rows import LineRow, RankRow
from boundby.report.terminal import MOST_LINES, as_text
from tests.diagnoses import bare_diagnosis, evil_diagnosis, full_diagnosis, real_diagnosis

GOLDEN = Path(__file__).parent / "data"
WALL_NS = 104e6


def finding(fault: str, title: str, saving: tuple[float, float, float], change: str) -> Finding:
    low, expected, high = (1e6 * ms for ms in saving)
    return Finding(
        fault=fault,
        group="bandwidth",
        where=["examples/char_gpt.py:35"],
        saving_ns=Estimate(low=low, expected=expected, high=high),
        change=change,
        title=title,
        assumes="nothing else uses it",
    )


def line(number: int, ms: float) -> LineRow:
    ns = 1e6 * ms
    return LineRow(
        where=f"char_gpt.py:{number}",
        text="x = x + self.attention(self.norm(x))",
        ns=ns,
        share=ns / WALL_NS,
        groups={"bandwidth": 0.8 * ns, "overhead": 0.2 * ns},
        parts={"python": 0.2 * ns},
    )


def remark(text: str) -> Note:
    return Note(code="busy-machine", text=text)


def char_gpt() -> Diagnosis:
    """A fixed diagnosis of a CPU step; no text in it comes from a fault's file."""
    group = Group(ns=66e6, share=0.63, excess_ns=63e6, parts={"device_memory": 66e6})
    expected = Estimate(low=58e6, expected=61e6, high=80e6)
    return Diagnosis(
        target="char_gpt.py",
        machine=Machine(device="Two-core CPU", kind="cpu", chip="Two-core"),
        step=StepTimes(
            kind="train 16x64",
            wall_ns=WALL_NS,
            wall_source="clean",
            wall_interval_ns=(102e6, 107e6),
            samples_ns=[WALL_NS] * 10,
        ),
        account=Account(
            compute=Group(ns=36e6, share=0.35, excess_ns=9e6),
            bandwidth=group,
            overhead=Group(ns=2e6, share=0.02, parts={"python": 1.5e6, "core": 0.5e6}),
            unknown=Group(),
        ),
        verdict=Verdict(
            bound_by="bandwidth",
            if_free={"bandwidth": 2.7, "compute": 1.5, "overhead": 1.0},
            why="With zero memory time the step would be 2.7x faster (zero compute 1.5x, zero "
            "overhead 1.0x). 96% of the memory time is kernels running below the memory roofline, "
            "not necessary traffic.",
        ),
        utilisation=Utilisation(mfu=0.25, hfu=0.25, bandwidth=0.02),
        lines=[line(number, 104 / 2**number) for number in range(1, 9)],
        findings=[
            finding("slow-dropout", "Slow dropout", (12, 20, 26), "model.dropout = Fast()"),
            finding("slow-attention", "Slow attention", (3, 9.5, 11), "y = attention(q, k, v)"),
            finding("far-from-roof", "Slow kernels", (0, 7.87, 32.5), "a = 1\nb = 2\nc = 3"),
            finding("host-sync", "Host waits for the device", (0, 3, 4), "losses.append(loss)"),
            finding("wasted-tiles", "Unaligned product", (0, 0.1, 0.2), "vocabulary = 30528"),
        ],
        what_if=[
            WhatIf(faults=[], wall_ns=Estimate(low=WALL_NS, expected=WALL_NS, high=WALL_NS)),
            WhatIf(faults=["slow-dropout", "slow-attention"], wall_ns=expected),
        ],
        notes=[remark("the machine was busy"), remark("second note"), remark("third note")],
    )


def test_default_report_of_a_fixed_diagnosis() -> None:
    assert as_text(char_gpt()) == (GOLDEN / "screen.txt").read_text(encoding="utf-8")


def test_verbose_report_of_a_fixed_diagnosis() -> None:
    golden = (GOLDEN / "verbose.txt").read_text(encoding="utf-8")
    assert as_text(char_gpt(), verbose=True) == golden


def crowded() -> Diagnosis:
    """Everything at once, in words that need several lines each."""
    base = char_gpt()
    replace = msgspec.structs.replace
    long = "a very long piece of text that does not fit into any line " * 3
    return replace(
        base,
        verdict=replace(base.verdict, why=long),
        findings=[replace(one, title=long, change=f"{long}\n" * 3) for one in base.findings],
        ranks=[RankRow(rank=rank, name="r.json", wall_ns=WALL_NS) for rank in range(8)],
        proofs=full_diagnosis().proofs,
        notes=[remark(long)] * 9,
    )


@pytest.mark.parametrize(
    "diagnosis",
    [char_gpt, crowded, bare_diagnosis, real_diagnosis, full_diagnosis, evil_diagnosis],
    ids=lambda make: make.__name__,
)
def test_default_report_fits_one_screen_without_trailing_blanks(diagnosis) -> None:  # type: ignore[no-untyped-def]
    lines = as_text(diagnosis()).rstrip("\n").split("\n")
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= 100 for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_verbose_report_has_no_trailing_blanks() -> None:
    lines = as_text(full_diagnosis(), verbose=True).splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) > MOST_LINES


def test_warnings_are_printed_whole_where_there_is_room() -> None:
    notes = [remark(f"warning {number}: " + "many words " * 12) for number in range(3)]
    bare = msgspec.structs.replace(char_gpt(), findings=[], what_if=[], lines=[], notes=notes)
    text = as_text(bare)
    assert " ".join(text.split()).count("many words " * 11) == 3 and "…" not in text
    assert "more warning" not in text


def test_warning_that_the_verdict_states_is_not_repeated() -> None:
    base = char_gpt()
    verdict = msgspec.structs.replace(base.verdict, why="Cores were busy. More.")
    text = as_text(
        msgspec.structs.replace(base, verdict=verdict, notes=[remark("cores were busy")])
    )
    assert "! " not in text and text.count("ores were busy") == 1


def test_report_on_several_ranks_says_which_one_it_shows() -> None:
    ranks = [
        RankRow(rank=rank, name=f"rank{rank}.json", wall_ns=WALL_NS, waiting_ns=1e6 * rank)
        for rank in range(2)
    ]
    job = msgspec.structs.replace(char_gpt(), target="run/rank0.json", ranks=ranks)
    assert "shown is rank 0, which the others wait for" in as_text(job)
    apart = [msgspec.structs.replace(row, waiting_ns=None) for row in ranks]
    assert "shown is rank 0, the slowest" in as_text(msgspec.structs.replace(job, ranks=apart))
    assert "shown is" not in as_text(msgspec.structs.replace(job, ranks=ranks[:1]))
