"""The result of prove beside the best variant by hand, with steps in alternation."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
# What is compared has its dropout switched off, its generators seeded, and is compiled again.
SCRIPT = """
import torch, time
assert torch.nn.functional.dropout.__code__.co_filename.startswith(torch.__path__[0])
seed = torch.initial_seed()
class Net(torch.nn.Linear):
    def forward(self, x):
        assert torch.initial_seed() == seed
        return super().forward(x)
model = Net(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(600):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.1)
"""


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    for name in ("ledger", "proofs_table", "provable", "turns", "proofs_by_hand"):
        sys.modules.pop(name, None)
    return __import__("proofs_by_hand")


def test_result_of_prove_is_timed_alternately_with_every_variant(
    by_hand: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, quick, broken = (tmp_path / name for name in ("train.py", "quick.py", "broken.py"))
    script.write_text(SCRIPT)
    quick.write_text(SCRIPT.replace("sleep(0.1)", "sleep(0.005)"))
    broken.write_text("raise RuntimeError('no such option')")
    monkeypatch.setattr(by_hand, "SCREENING", 2)
    monkeypatch.setattr(by_hand, "ROUNDS", 3)
    variants = {name: [str(path)] for name, path in (("quick", quick), ("broken", broken))}
    found = by_hand.beside([str(script)], ["unfused-optimizer/fused"], variants)
    assert found["hand"] == "quick" and list(found["screened_ms"]) == ["quick"]
    assert len(found["prove_ms"]) == len(found["hand_ms"]) == 2
    low, middle, high = found["speed_of_hand"]
    # A twentieth where nothing disturbs it: how long either takes is not the point.
    assert low <= middle <= high < 0.95


def test_host_speed_common_to_a_round_cancels(by_hand: ModuleType) -> None:
    turn = by_hand.Turn
    rounds = [{"a": turn(2.0 * pace, 1.0), "b": turn(1.0 * pace, 1.0)} for pace in (1.0, 3.0, 1.5)]
    (a,), (b,) = by_hand._at_one_pace(rounds, ["a"]), by_hand._at_one_pace(rounds, ["b"])
    assert [x / y for x, y in zip(a, b, strict=True)] == pytest.approx([2.0] * 3)
    assert a == pytest.approx([a[0]] * 3)
