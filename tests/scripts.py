"""Scripts written to a folder and run under `boundby run`, with roofs that need no measuring."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from boundby.model import store
from tests import fork_server
from tests.machines import round_machine

# A model, its optimizer and one training step, for scripts to use.
TRAINING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).mean()
    loss.backward()
    optimizer.step()
    return loss
"""
# Few steps and no profile: what most tests need.
SHORT = ("--warmup", "2", "--steps", "3", "--profiled", "0")


@dataclass(frozen=True)
class Done:
    """What became of a run."""

    code: int
    out: str
    err: str
    diagnosis: dict[str, Any] | None

    @property
    def step(self) -> dict[str, Any]:
        assert self.diagnosis is not None, self.err
        step: dict[str, Any] = self.diagnosis["step"]
        return step

    @property
    def warnings(self) -> str:
        assert self.diagnosis is not None, self.err
        return "\n".join(note["text"] for note in self.diagnosis["notes"])


def environment(**extra: str) -> dict[str, str]:
    # One thread: two that spin on a busy machine take a hundred times longer.
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **extra}


def command(folder: Path, *options: str) -> list[str]:
    machine = folder / "machine.json"
    store.write(round_machine(), machine)
    return ["boundby", "run", "--machine", str(machine), *options]


def write(folder: Path, source: str, name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source))
    return path


def run(
    folder: Path,
    source: str,
    *args: str,
    options: tuple[str, ...] = SHORT,
    stdin: str = "",
    env: dict[str, str] | None = None,
    own_process: bool = False,
) -> Done:
    """Run a script's source; its own arguments come last."""
    write(folder, source)
    return run_command(
        folder, *options, "train.py", *args, stdin=stdin, env=env, own_process=own_process
    )


def run_command(
    folder: Path,
    *arguments: str,
    stdin: str = "",
    env: dict[str, str] | None = None,
    own_process: bool = False,
) -> Done:
    """`boundby run` in a fork of a process that has torch, or in a process of its own."""
    saved = folder / "diagnosis.json"
    given = () if "--json" in arguments else ("--json", str(saved))
    start = ["-m", *command(folder, *given, *arguments)]
    if own_process:
        done = subprocess.run(
            [sys.executable, *start],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=env or environment(),
            timeout=fork_server.HANG_S,
        )
    else:
        done = fork_server.run_python(start, cwd=folder, env=env or environment(), stdin=stdin)
    diagnosis = json.loads(saved.read_text()) if saved.exists() else None
    return Done(done.returncode, done.stdout, done.stderr, diagnosis)


def boundby(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that runs no script, on a machine without a display."""
    headless = {key: value for key, value in environment().items() if "DISPLAY" not in key}
    return fork_server.run_python(
        ["-m", "boundby", *arguments], cwd=Path.cwd(), env={**headless, **variables}
    )


def run_python(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run a script that uses boundby from Python; the tests' own modules can be imported."""
    path = write(folder, source)
    root = os.pathsep.join(
        [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    return fork_server.run_python([str(path)], cwd=folder, env=environment(PYTHONPATH=root))
