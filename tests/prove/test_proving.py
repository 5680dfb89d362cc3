"""What is said of fixes, alone and together, and when one is taken to hang."""

from pathlib import Path

import pytest

from boundby.prove import process
from boundby.prove.combination import Candidate
from boundby.prove.process import Wanted
from boundby.prove.proving import Trials, together
from boundby.prove.results import TrialStore
from boundby.prove.scheduler import Step
from boundby.prove.trial_result import Notes, TrialResult


def test_a_line_that_several_ask_for_is_written_once() -> None:
    masks = "masking_utils.is_tracing = no"
    changes = [
        "AdamW(..., fused=True)",
        f"{masks}  # with nothing padded\nmodel = graphed(model)",
        f'attn_implementation="sdpa"\n{masks}  # if compiled',
    ]
    assert together(changes).splitlines() == [
        "AdamW(..., fused=True)",
        f"{masks}  # with nothing padded",
        "model = graphed(model)",
        'attn_implementation="sdpa"',
    ]


def test_blocks_keep_their_lines() -> None:
    blocks = ["with autocast():\n    loss = model(x)", "with other():\n    loss = model(x)"]
    assert together(blocks) == "\n".join(blocks)
    alike = ["with autocast():\n    loss = model(x)", "with autocast():\n    logits = model(x)"]
    assert together(alike) == "\n".join(alike)


def seen(*arm: str, ms: float = 10.0, dropouts: int = 0, touched: int = 1) -> TrialResult:
    notes = Notes(losses=[[2.0]] * 7, gradients=[1.0, 2.0], dropouts=dropouts)
    found = {"something": touched} if touched else {}
    return TrialResult(
        arm=list(arm), seconds=2.0, samples_ns=[ms * 1e6] * 15, notes=notes, touched=found
    )


def test_what_is_kept_was_held_against_three_seeds() -> None:
    """As where an experiment is interrupted, or short of time."""
    for dropouts, outcome in ((0, "kept"), (1, "no gain")):
        ledger = TrialStore([seen(dropouts=dropouts), seen("a/b", ms=5, dropouts=dropouts)] * 2)
        assert ledger.result(("a/b",)).held
        found = ledger.concluded(("a/b",))
        assert (found.outcome, found.open) == (outcome, bool(dropouts))
    assert "held against 3 seeds of the script as it is, and there are 2" in found.why
    ledger.add(seen(dropouts=1))
    assert ledger.concluded(("a/b",)).held


def test_a_fix_of_ones_own_need_not_say_what_it_changes() -> None:
    runs = [seen(), seen("a/b", ms=5, touched=0)] * 2
    assert TrialStore(runs).result(("a/b",)).outcome == "not run"
    assert TrialStore(runs, silent={"a/b"}).result(("a/b",)).held


@pytest.mark.parametrize(("preparation_s", "limit_s"), [(0.0, 42.0), (30.0, 162.0), (240.0, 492.0)])
def test_what_prepares_nothing_is_taken_to_hang_sooner(
    preparation_s: float, limit_s: float
) -> None:
    one = Candidate(key="a/b", faults=("a",), change="", preparation_s=preparation_s)
    trials = Trials(
        observe=seen_of, candidates=[one], ledger=TrialStore([seen()]), budget_s=10_000.0
    )
    assert trials._wanted(Step(arm=("a/b",), why="")).limit_s == limit_s


def seen_of(wanted: Wanted) -> TrialResult:
    return seen(*wanted.arm)


def test_what_was_raised_is_said_whole_and_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = "before\nTraceback (most recent call last):\n  File x\nValueError: it\non two lines\n"
    for text, words in ((trace, "ValueError: it"), ("oh\nno\n", "no"), ("", "exit code 1")):
        log.write_text(text)
        assert process._reason(1, log) == words


def test_what_is_told_to_be_kept_is_patched_though_the_best_is_open() -> None:
    """One that held, and one run of a better one, which is too few."""
    ledger = TrialStore()
    for one in (seen(), seen("fused/fused", ms=9), seen(), seen("fused/fused", ms=9), seen()):
        ledger.add(one)
    ledger.add(seen("compile/compile", ms=8))
    candidates = [
        Candidate(key=f"{name}/{name}", faults=(name,), change=f"# {name}")
        for name in ("fused", "compile")
    ]
    trials = Trials(observe=lambda _: seen(), candidates=candidates, ledger=ledger, budget_s=60.0)
    assert not ledger.concluded(trials.final).held
    assert trials.kept == ("fused/fused",)
    none = Trials(
        observe=lambda _: seen(), candidates=candidates, ledger=TrialStore(), budget_s=60.0
    )
    assert none.kept is None
