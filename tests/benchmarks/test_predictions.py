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

from tests.fork_server import HANG_S

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("ledger", "diagnosed", "medians", "turns", "fixes", "predictions_table", "predictions")


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
    times = {"low": wall - 1, "expected": wall, "high": wall}
    saving = {"low": 90 - wall, "expected": 100 - wall, "high": 120 - wall}
    return {"faults": list(faults), "wall_ns": times, "saving_ns": saving}


def diagnosis(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": {"wall_ns": 100.0, "replay_error": 0.01},
        "findings": [{"fault": fault} for fault in ("graphs", "sdpa", "fused", "other")],
        "what_if": list(rows),
    }


def test_prediction_is_the_largest_combination_with_a_row(predictions: ModuleType) -> None:
    rows = [row("graphs", wall=90), row("sdpa", wall=80), row("fused", wall=95)]
    rows += [row("sdpa", "fused", wall=75), row("sdpa", "other", wall=60)]
    found = predictions.predicted(diagnosis(*rows), ["graphs", "sdpa", "fused"])
    assert found["faults"] == ["sdpa", "fused"]
    assert found["predicted_ns"]["expected"] == 75
    assert found["saving_ns"] == {"low": 15, "expected": 25, "high": 45}
    # Of two that are as large, the faster.
    assert predictions.predicted(diagnosis(*rows), ["graphs", "sdpa"])["faults"] == ["sdpa"]


def test_fault_without_finding_has_no_saving(predictions: ModuleType) -> None:
    found = predictions.predicted(diagnosis(row("sdpa", wall=80)), ["layout-copies"])
    assert found["predicted_ns"]["expected"] == 100.0 and found["faults"] == []


def seen(clock: float, *walls: float) -> list[dict[str, Any]]:
    """One attempt at a model: its diagnosis, and the clock's time of the unfixed step."""
    rows: list[dict[str, Any]] = [{"what": "predicted", "fix": "sdpa", "wall_ns": w} for w in walls]
    return [*rows, {"what": "measured", "fix": "eager", "rounds_ns": [clock] * 3}]


@pytest.mark.parametrize(("clock", "changed"), [(104.0, False), (115.0, True), (85.0, True)])
def test_changed_step_is_diagnosed_again(scored: ModuleType, clock: float, changed: bool) -> None:
    assert scored.lacks_diagnosis(seen(clock, 100.0)) is changed
    assert not scored.lacks_diagnosis(seen(clock, 100.0)[:1])
    # A second diagnosis counts.
    assert not scored.lacks_diagnosis(seen(clock, 100.0, 300.0))
    # Where it was diagnosed between two halves, both of them tell.
    between = seen(clock, 100.0)
    between[0]["round"] = 2
    assert not scored.lacks_diagnosis(between)


def test_attempt_cut_before_its_second_diagnosis_is_ignored(scored: ModuleType) -> None:
    def go(number: int, clock: float, wall: float, fixed: float) -> list[dict[str, Any]]:
        said = {"low": 1.0, "expected": wall - fixed, "high": wall}
        rows = seen(clock, wall)
        rows[0] |= {"saving_ns": said, "predicted_ns": said}
        rows.append({"what": "measured", "fix": "sdpa", "rounds_ns": [fixed] * 3})
        known = {"device": "it", "case": "bert", "go": number, "commit": "c", "problem": None}
        return [{"busy_ns": fixed, **known, **row} for row in rows]

    whole, cut = go(1, 100.0, 101.0, 60.0), go(2, 150.0, 101.0, 61.0)
    assert [one["after"] for one in scored.rows_of(whole, "it")] == [60.0]
    assert [one["after"] for one in scored.rows_of(whole + cut, "it")] == [60.0]


def test_saving_is_the_median_of_pairs(scored: ModuleType) -> None:
    """A host that is half as fast half of the time, for both variants of a round."""
    draw = np.random.default_rng(1)
    pace = np.repeat(draw.choice([1.0, 2.0], 20), 4)
    eager = {"rounds_ns": list(100.0 + draw.normal(0, 0.1, 80) + 50 * pace)}
    fixed: dict[str, Any] = {"rounds_ns": list(80.0 + draw.normal(0, 0.1, 80) + 50 * pace)}
    fixed |= {"processes": 1, "first_round": 0}
    saved, doubt = scored.saving(eager, fixed)
    assert saved == pytest.approx(20, abs=0.2) and doubt < 0.1
    # Without pairs, the difference is that of the host's speed.
    unpaired = {**fixed, "first_round": 80}
    assert scored.saving(eager, unpaired)[1] > 5


def test_variant_added_later_is_compared_with_its_own_rounds(scored: ModuleType) -> None:
    eager = {"rounds_ns": [100.0] * 20 + [200.0] * 20}
    late = {"rounds_ns": [150.0] * 20, "processes": 1, "first_round": 20}
    assert scored.saving(eager, late) == (50.0, 0.0)
    assert scored.saving(eager, late, 2) == (250.0, 0.0)


def test_spread_of_few_rounds_is_unknown(scored: ModuleType) -> None:
    """Five rounds may all be on one side of the median of the next hundred."""
    few = {"rounds_ns": [80.0] * 5, "processes": 1, "first_round": 0}
    assert scored.saving({"rounds_ns": [100.0] * 5}, few) == (20.0, float("inf"))


def test_older_ledger_rows_are_read(scored: ModuleType) -> None:
    saved, doubt = scored.saving({"rounds_ns": [99.0, 100, 101]}, {"rounds_ns": [80.0, 80, 80]})
    assert saved == 20 and doubt == pytest.approx((1 / 3) ** 0.5)


def test_correlated_neighbours_widen_the_interval(predictions: ModuleType) -> None:
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

folder, device = Path(sys.argv[1]), sys.argv[3]
# As if the device held two of the small ones, or the large one alone.
room = {None: 1, 8: 1, 16: 2}

def tiny(args):
    alive = [path for path in folder.glob("alive-*") if Path("/proc", path.name[6:]).exists()]
    taken = sum(int(path.read_text()) for path in alive)
    if taken + room[args.batch] > 2 and device == "cpu":
        raise torch.OutOfMemoryError("CUDA out of memory.")
    import os
    (folder / f"alive-{os.getpid()}").write_text(str(room[args.batch]))
    x = torch.randn(args.batch or 8, 16, device=device)
    return nn.Linear(16, 16), lambda model: model(x).square().mean()

workloads.TRAINING["tiny"] = tiny
fixes = {"fused": ("--fused", ["unfused-optimizer"]), "graphs": ("--graphs", ["eager-launches"])}
fixes |= {"again": ("--batch 8", ["none"]), "batch 2x": ("--batch 16", ["batch-2x"])}
predictions.CASES["tiny"] = (f"tiny --device {device} --precision float32", fixes)
predictions.LEDGER.path = folder / "ledger.jsonl"
predictions.FEWEST_ROUNDS, predictions.MOST_ROUNDS = 2, 3
def midway(played):
    (folder / "midway.txt").open("a").write(f"{played}\\n")
predictions.measure("tiny", list(fixes), float(sys.argv[2]), 7, midway)
"""


def measured(folder: Path, seconds: float, device: str = "cpu") -> dict[str, Any]:
    script = folder / "tiny.py"
    script.write_text(TINY)
    paths = f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"
    subprocess.run(
        [sys.executable, str(script), str(folder), str(seconds), device],
        env={**os.environ, "PYTHONPATH": paths, "BOUNDBY_COMMIT": "abc", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=HANG_S,
    )
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return {found["fix"]: found for found in map(json.loads, lines)}


def test_tiny_case_is_measured_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = measured(tmp_path, 60.0)
    assert list(rows) == ["eager", "fused", "graphs", "again", "batch 2x"]
    for name in ("eager", "fused", "again", "batch 2x"):
        assert rows[name]["problem"] is None and rows[name]["processes"] == 1
        assert len(rows[name]["pace_ns"]) == len(rows[name]["rounds_ns"]) >= 2
        assert min(rows[name]["rounds_ns"]) > 0 and min(rows[name]["pace_ns"]) > 0
    # Two at a time: each beside rounds of the unfixed step, but for the one that needs it all.
    played = {name: len(found["rounds_ns"]) for name, found in rows.items()}
    first = {name: found["first_round"] for name, found in rows.items()}
    assert played["eager"] == played["fused"] + played["again"]
    # One after the other; either may be first.
    sooner, later = sorted(("fused", "again"), key=first.__getitem__)
    assert (first[sooner], first[later]) == (0, played[sooner])
    assert first["batch 2x"] == played["eager"]
    # Once, between two halves of the first play.
    assert (tmp_path / "midway.txt").read_text().split() == [str(played[sooner] // 2)]
    # There was room for it in the end, and no graph on a CPU.
    assert played["graphs"] == 0 and "CUDA support" in rows["graphs"]["problem"]


def test_fix_without_time_is_not_reported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert measured(tmp_path, 0.0) == {}


@pytest.mark.gpu
def test_tiny_case_is_measured_on_a_gpu(tmp_path: Path) -> None:
    rows = measured(tmp_path, 100.0, "cuda")
    assert list(rows) == ["eager", "fused", "graphs", "again", "batch 2x"]
    played = {len(found["rounds_ns"]) for found in rows.values()}
    assert len(played) == 1 and played.pop() >= 2
    for found in rows.values():
        assert found["problem"] is None and found["first_round"] == 0
        assert 0 < found["busy_ns"] < 1.5 * max(found["rounds_ns"])
