"""boundby prove on real scripts: what is planted to be wrong is refused for the right reason."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from boundby.model import Machine, store
from tests.machines import round_machine
from tests.scripts import TRAINING, environment, write

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
# Most of its steps is waiting: they are alike on the busiest machine.
LOOP = TRAINING + "import time\nfor _ in range(400): train(); time.sleep(0.03)\n"
# Large enough for its steps to be alike, small enough to be quick.
STEADY = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
from torch import nn
model = nn.Sequential(nn.Linear(256, 512), nn.Dropout(0.1), nn.Linear(512, 8))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(400):
    x = torch.randn(256, 256)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def start(
    folder: Path, source: str, *options: str, machine: Machine | None = None
) -> "subprocess.Popen[str]":
    write(folder, source)
    store.write(machine or round_machine(), folder / "machine.json")
    given = [
        "--plugin",
        "tests.prove.planted",
        "--machine",
        "machine.json",
        "--json",
        "proof.json",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "boundby", "prove", *given, *options, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", XDG_CACHE_HOME=str(folder / "cache")),
    )


def finish(running: "subprocess.Popen[str]", folder: Path) -> tuple[int, str, dict[str, Any]]:
    _, err = running.communicate(timeout=900)
    saved = folder / "proof.json"
    return running.returncode, err, json.loads(saved.read_text()) if saved.exists() else {}


def prove(folder: Path, source: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    return finish(start(folder, source, *options), folder)


def prove_on_cpu(folder: Path, source: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """With a machine that is one: the round one is a CUDA device."""
    machine = msgspec.structs.replace(round_machine(), kind="cpu")
    return finish(start(folder, source, *options, machine=machine), folder)


def outcomes(diagnosis: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {proof["treatment"]: (proof["outcome"], proof["why"]) for proof in diagnosis["proofs"]}


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        try:
            if one.cwd() == str(folder):
                found.append(one)
        except psutil.Error:
            continue
    return found


def test_planted_fixes_are_refused_for_the_right_reason(tmp_path: Path) -> None:
    faults = "planted-wrong,planted-slower,planted-hanging,planted-crashing"
    code, err, diagnosis = prove(
        tmp_path, STEADY, "--only", faults, "--timeout", "20s", "--budget", "10m"
    )
    assert code == 0, err
    found = outcomes(diagnosis)
    assert found["wrong"][0] == "wrong numbers"
    assert "with dropout off" in found["wrong"][1]
    assert found["slower"] == ("no gain", "it is slower")
    assert found["hanging"][0] == "failed"
    assert "no end after 20 s" in found["hanging"][1]
    assert found["crashing"] == ("failed", "MemoryError: planted: out of memory")
    assert "no fix held" in err
    failed = next(proof for proof in diagnosis["proofs"] if proof["treatment"] == "crashing")
    assert "planted: out of memory" in Path(failed["log"]).read_text()
    # Only what was named is tried, and the script ran in few processes.
    assert len(diagnosis["proofs"]) == 4
    trials = diagnosis["trials"]
    assert trials[0]["start"] == "fresh"
    assert trials[0]["spent_s"]["torch"] > 0
    if sys.platform == "linux":
        assert trials[1]["start"] == "forked"
        starts = {
            name: [one["start"] for one in trials if one["treatment"] == name]
            for name in ("crashing", "hanging")
        }
        # What said itself what was wrong is not asked again; what was killed is, without a fork.
        assert starts["crashing"] in (["forked"], ["fresh"])
        assert starts["hanging"] in (["forked", "fresh"], ["fresh"])


def test_interrupted_resumed_and_nothing_changed_is_no_gain(tmp_path: Path) -> None:
    options = ("--only", "planted-nothing", "--keep-logs", "logs", "--steps", "5")
    running = start(tmp_path, LOOP, *options)
    logs = tmp_path / "logs"
    while running.poll() is None and not list(logs.glob("planted-*")):
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    code, err, interrupted = finish(running, tmp_path)
    assert code == 130
    deadline = time.monotonic() + 60
    while processes_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_in(tmp_path) == []
    assert "the same command with --resume goes on from here" in err
    (proof,) = interrupted["proofs"]
    assert proof["outcome"] == "not run"
    assert proof["why"].startswith("its turn did not come")
    before = proof["before_ns"]
    # What was measured is not measured again; a budget counts from the very beginning.
    code, err, resumed = prove(tmp_path, LOOP, *options, "--budget", "4m", "--resume")
    assert code == 0, err
    (proof,) = resumed["proofs"]
    assert proof["outcome"] == "no gain"
    assert proof["before_ns"][: len(before)] == before
    assert len(proof["after_ns"]) >= 1


def test_what_holds_is_kept_and_patched(tmp_path: Path) -> None:
    """A loop that sleeps in its data: workers make the batches meanwhile."""
    source = """
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Rows(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.full((8,), float(index % 7))
if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(Rows(), batch_size=2):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    open("checkpoint.txt", "w").write("done")
"""
    code, err, diagnosis = prove(
        tmp_path,
        source,
        *("--only", "waiting-for-data", "--budget", "4m", "--steps", "8"),
        *("--patch", "fix.diff", "--scratch"),
    )
    assert code == 0, err
    (proof,) = diagnosis["proofs"]
    assert proof["outcome"] == "kept", proof["why"]
    assert proof["speedup"]["low"] > 1.2
    assert proof["predicted"] is not None
    assert "-> " in err
    assert "loss unchanged within noise" in err
    before = (tmp_path / "train.py").read_text()
    subprocess.run(
        ["patch", "-p1", "-i", "fix.diff"], cwd=tmp_path, check=True, capture_output=True
    )
    after = (tmp_path / "train.py").read_text()
    assert before != after
    assert "persistent_workers=True" in after


def test_a_script_that_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    code, err, _ = prove(tmp_path, "import torch\nraise SystemExit(7)")
    assert code == 7
    assert "the script ended with exit code 7 before a step was found" in err
    failing = "import torch\ntorch.nn.Linear(2, 2)(torch.zeros(3))"
    code, err, _ = prove(tmp_path, failing)
    assert code == 1
    assert "the script failed before a step was found; its last line: RuntimeError: " in err
    code, err, _ = prove(tmp_path, LOOP, "--only", "nonsense")
    assert code == 2
    assert "no fault and no fix is called nonsense" in err
    code, err, _ = prove(tmp_path, LOOP, "--resume")
    assert code == 2
    assert "nothing to resume" in err
    code, err, _ = prove(tmp_path, LOOP, "--budget", "soon")
    assert code == 2
    assert "90s, 10m or 1h" in err


def test_files_that_the_script_wrote_are_named_and_no_others(tmp_path: Path) -> None:
    """Opened by Python, saved by torch, written by a forked worker; not what others write."""
    source = """
import os, tempfile, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Rows(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        open("worker.log", "a").close()
        return torch.full((8,), float(index % 7))
if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.save(model.state_dict(), "first.pt")
    open("train.py").close()
    open("gone.txt", "w").close()
    os.remove("gone.txt")
    with open("partial.txt", "w") as file: file.write("x")
    os.replace("partial.txt", "whole.txt")
    tempfile.TemporaryFile().close()
    for batch in DataLoader(Rows(), batch_size=2, num_workers=1):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    running = start(tmp_path, source, "--only", "planted-nothing", "--budget", "1s", "--steps", "3")
    (tmp_path / "somebody-elses.txt").write_text("written meanwhile")
    code, err, diagnosis = finish(running, tmp_path)
    assert code == 0, err
    (named,) = [one for one in diagnosis["warnings"] if one.startswith("the script wrote files")]
    assert named.removeprefix("the script wrote files while it was measured: ").split(", ") == [
        "first.pt",
        "whole.txt",
        "worker.log",
    ]


def test_a_fix_that_nothing_speaks_for_is_tried_when_asked_for(tmp_path: Path) -> None:
    """Gradient checkpointing: slower, and told as what it is for. Progress is told line by line."""
    source = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
    def forward(self, x): return x + self.inner(x)
model = nn.Sequential(*(Block() for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(300):
    loss = model(torch.randn(512, 128)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
    options = ["--skip", "float32-products,float32-activations,compile,openmp-spin,fused"]
    options += ["--try", "checkpoints,sdpa:cudnn", "--budget", "4m", "--steps", "5"]
    code, err, diagnosis = prove_on_cpu(tmp_path, source, *options)
    assert code == 0, err
    proof = next(one for one in diagnosis["proofs"] if one["treatment"] == "checkpoints")
    assert proof["outcome"] == "no gain", proof
    assert proof["numerics"]["ok"], proof["numerics"]
    assert len(proof["after_ns"]) >= 1
    assert any("sdpa:cudnn was not tried" in one for one in diagnosis["warnings"])
    # A log gets a line for each run, with what it showed.
    lines = [line for line in err.splitlines() if " a step" in line]
    assert any("as it is: " in line for line in lines)
    assert any("checkpoints: " in line and "x so far (" in line for line in lines)
