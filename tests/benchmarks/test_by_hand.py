"""The clock beside the best by hand: it looks at steps, and leaves the program alone."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
# What is compared has its dropout switched off, its generators seeded, and is compiled again.
SCRIPT = """
import torch, time
assert "boundby" not in torch.nn.functional.dropout.__code__.co_filename
seed = torch.initial_seed()
class Net(torch.nn.Linear):
    def forward(self, x):
        assert torch.initial_seed() == seed
        return super().forward(x)
model = Net(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
"""


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    for name in ("ledger", "proofs_table", "provable", "proofs_by_hand"):
        sys.modules.pop(name, None)
    return __import__("proofs_by_hand")


def test_steps_are_timed_and_nothing_is_compared(by_hand: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    clock = by_hand.Clock([str(script)], tmp_path)
    with clock.forks:
        assert len(clock.take([str(script)], [])) >= 15
        assert len(clock.take([str(script)], ["unfused-optimizer/fused"])) >= 15
