"""`boundby prove` as a user runs it: exit code, report, JSON, patch; the script is not edited."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = """import torch
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(100_000):
    x = torch.randn(8, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OUTCOMES = {
    "kept", "no gain", "inconclusive", "unverified", "wrong numbers", "failed", "skipped",
}  # fmt: skip


def test_a_script_is_proven_end_to_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--budget", "40s", "--only", "fused", "--json", "proof.json", "--patch", "fix.patch"]
    done = subprocess.run(
        [sys.executable, "-m", "boundby", "prove", *options, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert script.read_text() == SCRIPT
    proofs = json.loads((tmp_path / "proof.json").read_text())["proofs"]
    (fused,) = [one for one in proofs if one["treatment"] == "fused" and not one["fresh"]]
    assert fused["outcome"] in OUTCOMES
    assert "fused" in done.stderr  # the report; stdout is the script's
    # How fast it is depends on the machine; what is kept is in the patch, and the patch applies.
    if fused["outcome"] == "kept":
        subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
        assert "fused=True" in script.read_text()
