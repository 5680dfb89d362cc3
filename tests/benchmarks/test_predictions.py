"""Predicted beside measured: which row is the prediction, and what the clock says was saved."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("ledger", "medians", "turns", "fixes", "predictions_table", "predictions")


@pytest.fixture
def predictions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in MODULES:
        sys.modules.pop(name, None)
    return __import__("predictions")


@pytest.fixture
def scored(predictions: ModuleType) -> ModuleType:
    return sys.modules["predictions_table"]


def row(*faults: str, wall: float) -> dict[str, Any]:
    return {"faults": list(faults), "wall_ns": {"low": wall - 1, "expected": wall, "high": wall}}


def diagnosis(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": {"wall_ns": 100.0, "replay_error": 0.01},
        "findings": [{"fault": fault} for fault in ("graphs", "sdpa", "fused", "other")],
        "what_if": list(rows),
    }


def test_the_largest_set_that_has_a_row_is_the_prediction(predictions: ModuleType) -> None:
    rows = [row("graphs", wall=90), row("sdpa", wall=80), row("fused", wall=95)]
    rows += [row("sdpa", "fused", wall=75), row("sdpa", "other", wall=60)]
    found = predictions.predicted(diagnosis(*rows), ["graphs", "sdpa", "fused"])
    assert found["faults"] == ["sdpa", "fused"]
    assert found["predicted_ns"]["expected"] == 75
    # Of two that are as large, the faster.
    assert predictions.predicted(diagnosis(*rows), ["graphs", "sdpa"])["faults"] == ["sdpa"]


def test_what_was_not_found_buys_nothing(predictions: ModuleType) -> None:
    found = predictions.predicted(diagnosis(row("sdpa", wall=80)), ["layout-copies"])
    assert found["predicted_ns"]["expected"] == 100.0 and found["faults"] == []


def test_a_saving_is_that_of_pairs(scored: ModuleType) -> None:
    """A host that doubles its pace half of the time, for both alike within a round."""
    draw = np.random.default_rng(1)
    pace = np.repeat(draw.choice([1.0, 2.0], 20), 4)
    eager = {"rounds_ns": list(100.0 + draw.normal(0, 0.1, 80) + 50 * pace)}
    fixed: dict[str, Any] = {"rounds_ns": list(80.0 + draw.normal(0, 0.1, 80) + 50 * pace)}
    fixed |= {"processes": 1, "first_round": 0}
    saved, doubt = scored.saving(eager, fixed)
    assert saved == pytest.approx(20, abs=0.2) and doubt < 0.1
    # Not in pairs, what differs is the pace.
    unpaired = {**fixed, "first_round": 80}
    assert scored.saving(eager, unpaired)[1] > 5


def test_one_that_came_later_stands_beside_its_own_rounds(scored: ModuleType) -> None:
    eager = {"rounds_ns": [100.0] * 20 + [200.0] * 20}
    late = {"rounds_ns": [150.0] * 20, "processes": 1, "first_round": 20}
    assert scored.saving(eager, late) == (50.0, 0.0)
    assert scored.saving(eager, late, 2) == (250.0, 0.0)


def test_older_rows_are_read_as_they_were(scored: ModuleType) -> None:
    saved, doubt = scored.saving({"rounds_ns": [99.0, 100, 101]}, {"rounds_ns": [80.0, 80, 80]})
    assert saved == 20 and doubt == pytest.approx((1 / 3) ** 0.5)


def test_blocks_of_neighbours_widen_what_goes_together(predictions: ModuleType) -> None:
    low, middle, high = predictions.median_interval([1.0, 2.0, 3.0] * 30)
    assert middle == 2.0 and low == high == 2.0
    assert predictions.median_interval([5.0]) == (5.0, 5.0, 5.0)
    together = predictions.median_interval([1.0] * 30 + [2.0] * 30)
    apart = predictions.median_interval(list(np.linspace(1, 2, 60)[np.argsort(np.arange(60) % 7)]))
    assert together[2] - together[0] > apart[2] - apart[0]


TINY = """
import sys
from pathlib import Path
import torch
from torch import nn
import predictions, workloads

crowd = Path(sys.argv[1]) / "crowd"

def tiny(args):
    # Counts the variants alive: the large one finds no memory beside more than the unfixed step.
    with crowd.open("a") as file:
        file.write(f"{args.batch}\\n")
    if args.batch == 16 and crowd.read_text().count("16") == 1:
        raise torch.OutOfMemoryError("CUDA out of memory.")
    x = torch.randn(args.batch or 8, 16)
    return nn.Linear(16, 16), lambda model: model(x).square().mean()

workloads.TRAINING["tiny"] = tiny
fixes = {"fused": ("--fused", ["unfused-optimizer"]), "batch 2x": ("--batch 16", ["batch-2x"])}
fixes["graphs"] = ("--graphs", ["eager-launches"])
predictions.CASES["tiny"] = ("tiny --device cpu --precision float32", fixes)
predictions.LEDGER.path = Path(sys.argv[1]) / "ledger.jsonl"
predictions.FEWEST_ROUNDS, predictions.MOST_ROUNDS = 2, 3
predictions.measure_case("tiny", list(fixes), 60.0, 7)
"""


def test_a_tiny_case_is_measured_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    paths = f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"
    subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "BOUNDBY_COMMIT": "abc", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    rows = {found["fix"]: found for found in map(json.loads, lines)}
    assert list(rows) == ["eager", "fused", "batch 2x", "graphs"]
    assert rows["graphs"]["rounds_ns"] == [] and "CUDA" in rows["graphs"]["problem"]
    for name in ("eager", "fused", "batch 2x"):
        assert rows[name]["problem"] is None and rows[name]["processes"] == 1
        assert len(rows[name]["pace_ns"]) == len(rows[name]["rounds_ns"]) >= 2
        assert min(rows[name]["rounds_ns"]) > 0 and min(rows[name]["pace_ns"]) > 0
    # It had its turns once the others were gone, beside the unfixed step.
    first = rows["batch 2x"]["first_round"]
    assert first == len(rows["fused"]["rounds_ns"])
    assert len(rows["eager"]["rounds_ns"]) == first + len(rows["batch 2x"]["rounds_ns"])
