"""What only a CUDA device can show; run with scripts/gpu_tests.sh."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import boundby
from boundby.model.diagnosis import Diagnosis

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def slow_mlp(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    target = tmp_path_factory.mktemp("run") / "diagnosis.json"
    options = ["--quiet", "--json", str(target)]
    subprocess.run(
        [sys.executable, "-m", "boundby", "run", *options, "examples/slow_mlp.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"src:{os.environ.get('PYTHONPATH', '')}"},
        check=True,
    )
    return msgspec.json.decode(target.read_bytes(), type=Diagnosis)


def test_the_account_adds_up_to_the_clean_wall(slow_mlp: Diagnosis) -> None:
    total = sum(group.ns for group in slow_mlp.account.groups().values())
    assert total == pytest.approx(slow_mlp.step.wall_ns)
    assert slow_mlp.step.wall_source == "clean"
    assert slow_mlp.account.unknown.share < 0.03
    assert 0 < (slow_mlp.step.device_busy_ns or 0) < slow_mlp.step.wall_ns


def test_the_bad_script_is_bound_by_its_overhead(slow_mlp: Diagnosis) -> None:
    assert slow_mlp.verdict.bound_by == "overhead"
    assert slow_mlp.account.overhead.parts["sync"] > 0
    assert slow_mlp.account.bandwidth.parts["host_link"] > 0
    faults = [finding.fault for finding in slow_mlp.findings]
    assert "unfused-optimizer" in faults
    assert "host-sync" in faults


def test_replay_explains_the_step(slow_mlp: Diagnosis) -> None:
    assert slow_mlp.step.replay_error is not None
    assert abs(slow_mlp.step.replay_error) < 0.25


def test_a_large_product_is_compute_bound_and_under_its_roof() -> None:
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    diagnosis = boundby.diagnose(lambda: [a @ b for _ in range(10)], warmup=3, steps=5)
    assert diagnosis.verdict.bound_by == "compute"
    (row,) = [row for row in diagnosis.ops if row.name == "aten::mm"]
    assert row.count == 10
    assert 0.7 < (row.roof_fraction or 0) <= 1.05


def test_a_large_pointwise_operator_is_memory_bound_and_under_its_roof() -> None:
    import torch

    x = torch.randn(1 << 28, device="cuda")
    diagnosis = boundby.diagnose(lambda: torch.cos(x), warmup=3, steps=5)
    assert diagnosis.verdict.bound_by == "bandwidth"
    (row,) = [row for row in diagnosis.ops if row.name == "aten::cos"]
    assert row.bytes == 2 * 4 * (1 << 28)
    assert 0.8 < (row.roof_fraction or 0) <= 1.02
