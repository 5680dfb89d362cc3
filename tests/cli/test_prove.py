"""`boundby prove` as a user runs it: exit code, report, JSON, patch; the script is not edited."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boundby.model import store
from tests.fork_server import HANG_S
from tests.machines import round_machine

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
# The second process that starts it measures the fixes: from its twelfth step on, which is written
# down, each takes half a second, so that no fix is decided while a test interrupts it.
SLOW_SCRIPT = """import pathlib, time
with open("starts", "a") as starts: starts.write("x")
is_second = pathlib.Path("starts").read_text() == "xx"
""" + SCRIPT.replace(
    "    x = ",
    """    if is_second and step >= 12:
        pathlib.Path("slow").touch()
        time.sleep(0.5)
    x = """,
)
OUTCOMES = {
    "kept", "no gain", "inconclusive", "unverified", "wrong numbers", "failed", "skipped",
}  # fmt: skip


def prove(folder: Path, *options: str) -> str:
    """Prove `train.py` in this folder; returns the report."""
    done = subprocess.run(
        [sys.executable, "-m", "boundby", "prove", *options, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def known_machine(folder: Path) -> list[str]:
    """Options that give roofs which need no measuring."""
    store.write(round_machine(), folder / "machine.json")
    return ["--machine", "machine.json"]


def test_a_script_is_proven_end_to_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--budget", "40s", "--only", "fused", "--json", "proof.json", "--patch", "fix.patch"]
    report = prove(tmp_path, *options, *known_machine(tmp_path))
    assert script.read_text() == SCRIPT
    proofs = json.loads((tmp_path / "proof.json").read_text())["proofs"]
    (fused,) = [one for one in proofs if one["treatment"] == "fused" and not one["fresh"]]
    assert fused["outcome"] in OUTCOMES
    assert "fused" in report  # the report; stdout is the script's
    # How fast it is depends on the machine; what is kept is in the patch, and the patch applies.
    if fused["outcome"] == "kept":
        subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
        assert "fused=True" in script.read_text()


def test_interrupts_keep_the_results_so_far(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW_SCRIPT)
    command = [sys.executable, "-m", "boundby", "prove", "--only", "fused", "--json", "proof.json"]
    command += known_machine(tmp_path)
    with (tmp_path / "report").open("wb") as report:
        process = subprocess.Popen(
            [*command, "train.py"],
            cwd=tmp_path,
            stderr=report,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
        try:
            until = time.monotonic() + HANG_S
            while not (tmp_path / "slow").exists():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.2)
            for _ in range(3):
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
            # The last one may come when Python has ended, and ends the process by itself.
            assert process.wait(timeout=HANG_S) in (130, -signal.SIGINT)
        finally:
            process.kill()
    found = json.loads((tmp_path / "proof.json").read_text())
    assert "interrupted" in {one["code"] for one in found["notes"]}
    assert found["proofs"]


JAX_SCRIPT = """import jax, jax.numpy as jnp
@jax.jit
def step(weights, x):
    loss, grads = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w[0]) @ w[1]) ** 2))(weights)
    return [w - 1e-3 * g for w, g in zip(weights, grads)], loss
weights = [jnp.ones((256, 256)), jnp.ones((256, 8))]
x = jnp.ones((64, 256))
for _ in range(100_000):
    weights, loss = step(weights, x)
"""


def test_a_jax_script_is_proven_with_fixes_of_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "train.py").write_text(JAX_SCRIPT)
    options = ["--budget", "60s", "--try", "jax-donate", "--json", "proof.json"]
    prove(tmp_path, *options, *known_machine(tmp_path))
    found = json.loads((tmp_path / "proof.json").read_text())
    assert {one["treatment"]: one["outcome"] for one in found["proofs"]}["jax-donate"] in OUTCOMES
    if found["framework"] is not None:  # else the diagnosis did not end in time
        assert found["framework"] == "jax"
        assert not {"sdpa", "fused"} & {one["treatment"] for one in found["proofs"]}


def test_script_without_steps_in_time_is_reported(tmp_path: Path) -> None:
    """Its fixes were not tried, and the report does not say so."""
    (tmp_path / "train.py").write_text("import time, torch\ntime.sleep(100)\n" + SCRIPT)
    report = " ".join(prove(tmp_path, "--budget", "15s", "--json", "proof.json").split())
    assert re.search(r"no fix was tried: the diagnosis took \d+ of 15 s", report)
    assert "no step in the rest" in report and "held" not in report
    assert "to try fixes: a larger --budget" in report
    notes = {one["code"] for one in json.loads((tmp_path / "proof.json").read_text())["notes"]}
    assert "no-fix-tried" in notes and "not-diagnosed" not in notes
