"""What hooks and watching cost: which pairs of steps count, and that the clocks run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.fork_server import HANG_S

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("medians", "hook_cost"):
        sys.modules.pop(name, None)
    return __import__("hook_cost")


def taker(hooks: ModuleType, paces: list[tuple[float, float]]) -> Callable[[bool], Any]:
    """Steps that take 2% more with hooks, twice as long where the loop before took longer."""
    left = iter(paces * 1000)

    def take(listens: bool) -> Any:
        before, after = next(left)
        return hooks.Sample((1.02 if listens else 1.0) * 1e6 * before, (before, after))

    return take


def test_pairs_count_where_host_speed_was_steady(hooks: ModuleType) -> None:
    # Four pairs: steady, steady but slow, a change between the steps, a change within one.
    paces = [(1.0, 1.05), (1.09, 1.0), (2.0, 2.0), (2.0, 2.1)]
    paces += [(1.0, 1.0), (2.0, 2.0), (1.0, 1.0), (1.0, 1.2)]
    pairs = hooks.take_pairs(taker(hooks, paces), count=10, seconds=30)
    assert [pair.steady for pair in pairs[:4]] == [True, True, False, False]
    assert sum(pair.steady for pair in pairs) == 10
    said = hooks.words(pairs).splitlines()
    assert said[0].startswith("all pairs: ")
    assert said[1].startswith(f"at a steady pace, 10 of {len(pairs)} pairs (")


def test_unsteady_host_stops_at_the_time_limit(hooks: ModuleType) -> None:
    pairs = hooks.take_pairs(taker(hooks, [(1.0, 1.0), (2.0, 2.0)]), count=1, seconds=0.01)
    assert pairs and not any(pair.steady for pair in pairs)
    assert hooks.words(pairs).splitlines()[1].endswith("pairs (0%): none")
    assert hooks.named(pairs)["steady"] is None


def test_both_orders_are_measured(hooks: ModuleType) -> None:
    order: list[bool] = []

    def take(listens: bool) -> Any:
        order.append(listens)
        return hooks.Sample(1.0, (1.0, 1.0))

    hooks.take_pairs(take, count=4, seconds=30)
    assert order == [True, False, False, True] * 2


def test_hooks_are_timed_on_a_cpu() -> None:
    options = "--device cpu --layers 1 --width 32 --heads 2 --length 8 --seconds 1"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "hook_cost.py"), *options.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("at a steady pace")


SCRIPT = """
import sys
sys.path.insert(0, {benchmarks!r})
import torch, turns
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
assert sys.argv[1:] == ["script", "--fast"]
turns.serve(lambda: turns.Program(step, cuda=False, turn_s=0.01))
"""


def test_plain_and_observed_processes_alternate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    for name in ("ledger", "medians", "turns", "watch_cost"):
        sys.modules.pop(name, None)
    watch_cost = __import__("watch_cost")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(benchmarks=str(ROOT / "benchmarks")))
    monkeypatch.setattr(watch_cost, "__file__", str(script))
    plain, watched = watch_cost.take(["--fast"], 3)
    assert len(plain) == len(watched) == 3
    assert all(turn.step_ns > 0 and turn.pace_ns > 0 for turn in plain + watched)
    script.write_text("raise SystemExit('no such model')")
    with pytest.raises(SystemExit, match=r"(?s)no such model.*its process died"):
        watch_cost.take([], 1)
