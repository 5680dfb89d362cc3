"""Several ranks run what the first decides, each at the same step."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from boundby.capture.process.execution import Target
from boundby.cli import prove
from boundby.model.errors import BoundbyError
from boundby.model.proof import Numerics, Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.communication import is_sharded, local_calls
from boundby.prove.evidence import Evidence
from boundby.prove.experiment import prove_target
from boundby.prove.launch import Setting, launch
from boundby.prove.live_run import LiveRun
from boundby.prove.ranks import Ranks, free_port, shared_plan, slowest, worst
from boundby.prove.request import Request
from boundby.prove.rounds import Action, Block, BlockResult, Check, Reply
from tests.fork_server import HANG_S
from tests.scripts import write

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
FAILED = BlockResult(failure="MemoryError: no memory")


def test_block_time_is_that_of_the_slowest_rank() -> None:
    one = BlockResult(times_ns=[1.0, 5.0, 2.0], peak_bytes=10.0, nothing_changed=True)
    other = BlockResult(times_ns=[3.0, 4.0], peak_bytes=20.0)
    assert slowest([one, other]) == BlockResult(times_ns=[3.0, 5.0], peak_bytes=20.0)
    assert slowest([one, one]).nothing_changed
    assert slowest([one, FAILED]).failure == "MemoryError: no memory"


def test_a_result_that_differs_on_one_rank_counts() -> None:
    fine = Numerics(ok=True, why="outputs")
    wrong = Numerics(ok=False, why="loss: 0.1")
    unknown = Numerics(ok=False, verified=False, why="nothing could be compared")
    assert worst([fine, fine]) is fine
    assert worst([fine, unknown, wrong]) is wrong
    assert worst([fine, unknown]) is unknown


def test_first_rank_decides_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Reply] = []

    def first() -> Generator[Action, Reply, None]:
        replies.append((yield Block(variant=("a/x",), untimed=1, timed=2)))
        replies.append((yield Check(variant=("a/x",))))

    def second() -> Generator[Action, Reply, None]:
        raise AssertionError("the plan of another rank")
        yield

    port, seen = free_port(), {0: [], 1: []}  # type: ignore[var-annotated]
    monkeypatch.setenv("WORLD_SIZE", "2")

    def run(ranks: Ranks, plan: Any) -> None:
        shared = shared_plan(plan, ranks)
        request = next(shared)
        while True:
            seen[ranks.rank].append(request)
            is_check = isinstance(request, Check)
            own: Reply = (
                Numerics(ok=ranks.rank == 0, why=f"rank {ranks.rank}")
                if is_check
                else BlockResult(times_ns=[1.0 + ranks.rank])
            )
            try:
                request = shared.send(own)
            except StopIteration:
                return

    ranks = []  # the first one's store ends with it
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        ranks.append(Ranks(torch, port))
    plans = (first(), second())
    threads = [Thread(target=run, args=pair) for pair in zip(ranks, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=HANG_S)
    block, check = Block(variant=("a/x",), untimed=1, timed=2), Check(variant=("a/x",))
    assert seen == {0: [block, check], 1: [block, check]}
    assert replies == [BlockResult(times_ns=[2.0]), Numerics(ok=False, why="rank 1")]


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
while True:
    # Ranks see other shapes.
    optimizer.zero_grad()
    model(torch.ones(4 + dist.get_rank(), 8)).mean().backward()
    optimizer.step()
"""


def test_ranks_switch_together_and_a_refusal_on_one_applies_to_all(tmp_path: Path) -> None:
    candidates = [
        Candidate(key=key, faults=(key.partition("/")[0],), change=key)
        for key in ("planted/refused-by-one", "planted/sleeps-on-one")
    ]
    run = LiveRun(
        setting=Setting(
            target=Target(name=str(write(tmp_path, SCRIPT)), args=[], is_module=False),
            folder=tmp_path,
            logs=tmp_path,
            plugins=["tests.prove.planted"],
            search_path=[str(ROOT), str(ROOT / "src")],
            ranks=2,
        ),
        candidates=candidates,
        evidence=Evidence(),
        deadline=time.monotonic() + 600,
        place=lambda: tmp_path,
    )
    run.run()
    assert run.problem is None
    assert run.evidence.done
    ruled = run.evidence.rulings["planted/refused-by-one",]
    assert (ruled.outcome, ruled.why) == (
        Outcome.FAILED,
        "RuntimeError: planted: not on this rank",
    )
    slower = run.evidence.comparison_of(("planted/sleeps-on-one",), ())
    assert slower.log_ratios
    assert max(slower.log_ratios) < 0


def test_failure_on_another_rank_is_reported_with_its_error(tmp_path: Path) -> None:
    source = (
        SCRIPT
        + """
    if dist.get_rank() == 1:
        raise ValueError("no data for this rank")
"""
    )
    launched = launch(
        Setting(
            target=Target(name=str(write(tmp_path, source)), args=[], is_module=False),
            folder=tmp_path,
            logs=tmp_path,
            search_path=[str(ROOT), str(ROOT / "src")],
            ranks=2,
        ),
        {"deadline": time.monotonic() + 600},
        name="live",
        cwd=tmp_path,
        kill_at=lambda: time.monotonic() + 600,
    )
    assert "no data for this rank" in launched.log.read_text()


def test_gradients_of_a_replicated_module_stay_local_in_checks() -> None:
    model = torch.nn.Linear(2, 2)
    with local_calls(torch, [model]):
        assert not is_sharded(torch, model)


def test_only_the_first_rank_under_torchrun_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    done = CliRunner().invoke(prove.command, ["missing.py"], standalone_mode=False)
    assert done.return_value == 0
    request = Request(target=Target(name="missing.py", args=[], is_module=False), ranks=1)
    with pytest.raises(BoundbyError, match="of one machine, which torchrun starts"):
        prove_target(request)
