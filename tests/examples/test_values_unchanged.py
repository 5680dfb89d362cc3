"""A program prints the same values and ends the same way under `boundby run --continue`.

Few programs, because each starts Python twice; benchmarks/programs.py does the same with public
ones.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scripts import environment, run_command, write

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
# Long enough for every window: warm-up, clean, host-timing and profiled steps, and some after.
WINDOWS = ("--warmup", "3", "--steps", "3", "--profiled", "2", "--continue", "--quiet")

# What real programs do with their tensors: a 0-d tensor in a list, a sparse product, complex
# numbers, a subclass, random numbers of all kinds, files, and an error of their own in the end.
HABITS = """
import random, sys, threading
from pathlib import Path
import numpy, torch
random.seed(0); numpy.random.seed(0); torch.manual_seed(0)
class Kept(torch.Tensor): pass
class Scale(torch.nn.Module):
    def forward(self, x): return x * 2
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
teacher = torch.nn.Linear(8, 1)
for parameter in teacher.parameters(): parameter.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
graph = torch.eye(16).to_sparse()
class Data(torch.utils.data.Dataset):
    scale = Scale()
    def __len__(self): return 16 * 16
    def __getitem__(self, index):
        return self.scale(torch.rand(8)) + random.random() + numpy.random.rand()
for number, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=16, shuffle=True)):
    optimizer.zero_grad()
    loss = (model(torch.sparse.mm(graph, batch.float())) - teacher(batch.float())).square().mean()
    loss = loss + torch.fft.fft(batch[0]).abs().mean().float()
    loss.backward()
    optimizer.step()
    schedule.step()
    kept = torch.tensor([loss.detach()]).as_subclass(Kept)
    print(number, loss.item().hex(), type(kept).__name__, kept.tolist()[0].hex())
print(schedule.get_last_lr())
torch.save(model.state_dict(), "weights.pt")
Path("log.txt").write_text(str([value.tolist() for value in model.state_dict().values()]))
print(torch.rand(1).item(), numpy.random.rand(), random.random(), threading.active_count())
if len(sys.argv) > 1: raise RuntimeError(sys.argv[1])
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    files: dict[str, bytes]


def alone(folder: Path, script: str, *args: str) -> Ended:
    done = subprocess.run(
        [sys.executable, script, *args],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, written(folder))


def under_boundby(folder: Path, script: str, *args: str) -> Ended:
    elsewhere = os.path.relpath(folder.with_name("diagnosis.json"), folder)
    done = run_command(folder, "--json", elsewhere, *WINDOWS, script, *args)
    return Ended(done.code, done.out, done.err, written(folder))


def written(folder: Path) -> dict[str, bytes]:
    names = {path.name: path for path in folder.rglob("*") if path.is_file()}
    names.pop("machine.json", None)
    return {name: path.read_bytes() for name, path in names.items()}


def test_values_of_an_unusual_script_that_fails_are_unchanged(tmp_path: Path) -> None:
    ended = []
    for how in (alone, under_boundby):
        folder = tmp_path / "same"
        folder.mkdir()
        write(folder, HABITS)
        ended.append(how(folder, "train.py", "as it should"))
        folder.rename(tmp_path / how.__name__)
    plain, watched = ended
    assert plain.code == 1 and "RuntimeError: as it should" in plain.err
    assert watched == plain


@pytest.mark.parametrize(
    ("example", "args"),
    [
        ("char_gpt.py", "--layers 1 --width 32 --context 16 --batch 4 --steps 25 --write 5"),
        ("image_classifier.py", "--images 256 --batch 8 --size 16 --width 8 --blocks 1 --epochs 1"),
        (
            "decode.py",
            "--layers 1 --width 32 --heads 2 --kv-heads 1 --vocabulary 99 --prompt 4 --new 12",
        ),
        ("slow_mlp.py", "--layers 2 --width 16 --batch 8 --steps 25"),
        (
            "jax_gpt.py",
            "--layers 1 --width 32 --heads 2 --tokens 64 --length 16 --batch 2 --steps 25",
        ),
    ],
)
def test_values_of_an_example_are_unchanged(tmp_path: Path, example: str, args: str) -> None:
    if example.startswith("jax"):
        pytest.importorskip("jax")
    script = str(EXAMPLES / example)
    folder = tmp_path / "empty"
    folder.mkdir()
    plain = alone(folder, script, *args.split())
    watched = under_boundby(folder, script, *args.split())
    assert plain.code == watched.code == 0
    assert _without_times(watched.out) == _without_times(plain.out)
    assert watched.files == plain.files


def _without_times(text: str) -> str:
    """Lines of the examples without times and rates."""
    return re.sub(r"[\d.]+ (s|ms|images/s|tokens/s)\b", "", text)
