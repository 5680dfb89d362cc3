"""boundby run does not change a script: streams, arguments, paths, imports and classes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from boundby.cli.saved import read_diagnosis
from boundby.model.diagnosis import Diagnosis
from tests.scripts import SHORT, TRAINING, command, environment, run, run_command, write

pytest.importorskip("torch")


def test_a_plain_loop_is_diagnosed(tmp_path: Path) -> None:
    options = (
        *("--warmup", "2", "--steps", "4", "--profiled", "2", "--out", "kept"),
        *("--html", "page.html", "--perfetto", "slices.json"),
    )
    done = run(tmp_path, TRAINING + "for _ in range(100): train()\nprint('end')", options=options)
    assert done.code == 0
    assert done.out == ""
    assert done.step["kind"] == "train 4x8"
    assert len(done.step["samples_ns"]) == 4
    assert {phase["name"] for phase in done.step["phases"]} == {
        "forward",
        "backward",
        "optimizer",
        "other",
    }
    assert done.step["dilation"] is not None
    assert done.step["wall_source"] == "clean"
    assert "-bound" in done.err
    # The profiler's own notes on its start are not the user's business.
    assert "USDT" not in done.err
    assert json.loads((tmp_path / "kept" / "diagnosis.json").read_text()) == done.diagnosis
    assert (tmp_path / "kept" / "trace.json").stat().st_size
    again = read_diagnosis(tmp_path / "kept")
    saved = msgspec.json.decode(msgspec.json.encode(done.diagnosis), type=Diagnosis)
    assert again == saved, "the saved observation gives the same diagnosis"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    names = {event["name"] for event in _events(tmp_path / "slices.json")}
    assert "aten::addmm" in names


def test_script_environment_is_unchanged(tmp_path: Path) -> None:
    """Everything it can print about itself, byte for byte, beside python's own run."""
    (tmp_path / "sibling.py").write_text("name = __name__")
    source = f"""
import os, sys, pickle
heavy = sorted({{"torch", "numpy", "rich"}} & set(sys.modules))
os.environ["OMP_NUM_THREADS"] = "2"
import sibling
{TRAINING}
class Config: pass
print(sys.argv, __name__, __file__, __package__, __spec__, os.getcwd(), sys.path[0], heavy)
print(sys.stdin.readline(), torch.get_num_threads(), type(torch.__spec__.loader), sibling.name)
print(pickle.loads(pickle.dumps(Config())).__class__, sys.modules["__main__"].Config is Config)
theirs = [f for f in sys.meta_path if not type(f).__module__.startswith('boundby.')]
print([getattr(f, '__name__', type(f)) for f in theirs], os.environ.get("KINETO_LOG_LEVEL"))
sys.stdout.buffer.write(b"\\xff\\x00raw")
for _ in range(50): train()
print(float(train()).hex())
"""
    args = ("--lr", "3e-4", "-m", "--", "x y")
    write(tmp_path, source)
    ours, plain = (
        subprocess.run(
            [sys.executable, *before, "train.py", *args],
            input=b"hello\n",
            capture_output=True,
            cwd=tmp_path,
            env=environment(),
            check=True,
        )
        for before in (["-m", *command(tmp_path, *SHORT, "--continue")], [])
    )
    assert ours.stdout == plain.stdout
    assert b"\xff\x00raw" in plain.stdout
    assert b"train 4x8" in ours.stderr


def test_module_in_a_package_is_run(tmp_path: Path) -> None:
    write(tmp_path, "value = 1", "pkg/__init__.py")
    write(tmp_path, TRAINING, "pkg/parts.py")
    source = """
        import sys
        from . import value
        from .parts import train
        import pkg.parts, toplevel
        print(sys.argv, __name__, __package__, __spec__.name, value, sys.path[0])
        for _ in range(50): train()
    """
    write(tmp_path, source, "pkg/train.py")
    write(tmp_path, "", "toplevel.py")
    done = run_command(tmp_path, *SHORT, "-m", "pkg.train", "--lr", "3e-4", "--steps", "5")
    assert done.code == 0, done.err
    assert done.step["kind"] == "train 4x8"
    path = tmp_path / "pkg" / "train.py"
    argv = [str(path), "--lr", "3e-4", "--steps", "5"]
    assert done.out.strip() == f"{argv} __main__ pkg pkg.train 1 {tmp_path}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.py",), "no such script: nothing.py"),
        (("-m", "nothing.here"), "no module named nothing.here"),
        ((), "give a script to run"),
        (("-m",), "-m needs the name of a module"),
        (("--steps", "0", "x.py"), "--steps"),
    ],
)
def test_wrong_target_is_a_one_line_error(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run_command(tmp_path, *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_only_json_is_written_to_stdout(tmp_path: Path) -> None:
    source = TRAINING + "import os\nfor _ in range(50): train(); print('mine')\nos.write(1, b'raw')"
    done = run(tmp_path, source, options=(*SHORT, "--json", "-", "--continue"))
    assert done.code == 0
    assert json.loads(done.out)["step"]["kind"] == "train 4x8"
    assert done.err.count("mine") == 50
    assert "raw" in done.err


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, TRAINING + "for _ in range(50): train()", options=(*SHORT, "--quiet"))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert done.step["kind"] == "train 4x8"


def test_loader_workers_run_classes_of_the_script(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
from torch.utils.data import DataLoader, Dataset
import sys
class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        torch.nn.Linear(1, 1)(torch.ones(1))  # a module's call in a worker is no step
        return torch.full((8,), float(index))
if __name__ == "__main__":
    for context in ("fork", "spawn"):
        batches = 0
        for batch in DataLoader(Rows(), batch_size=16, num_workers=1,
                                multiprocessing_context=context):
            train()
            batches += 1
        print(context, batches)
"""
    done = run(tmp_path, source, options=(*SHORT, "--continue"))
    assert done.code == 0, done.err
    assert done.out.split("\n")[:2] == ["fork 4", "spawn 4"]
    assert done.step["kind"] == "train 4x8"


def test_forked_process_prints_nothing(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import os
for number in range(50):
    if number == 3:
        child = os.fork()
        if not child:
            break
        os.waitpid(child, 0)
    train()
"""
    done = run(tmp_path, source)
    assert done.code == 0
    assert done.err.count("Step train 4x8:") == 1


def test_step_marks_in_the_script_are_used(tmp_path: Path) -> None:
    source = "import boundby, torch\nx = torch.ones(9)\nfor _ in range(50): x.cos(); boundby.step()"
    done = run(tmp_path, source)
    assert done.step["kind"] == "step"
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, check=True
    )
    assert plain.stdout == plain.stderr == b""


@pytest.mark.parametrize(
    "gradients",
    [
        "torch.func.grad(loss)(parameters)",
        "dict(zip(parameters, torch.autograd.grad(loss(parameters), parameters.values())))",
    ],
)
def test_training_without_an_optimizer_or_backward_is_named(tmp_path: Path, gradients: str) -> None:
    source = f"""
        import torch
        model = torch.nn.Linear(8, 4)
        parameters = dict(model.named_parameters())
        def loss(parameters):
            return torch.func.functional_call(model, parameters, (torch.ones(16, 8),)).sum()
        for _ in range(40):
            gradients = {gradients}
            with torch.no_grad():
                for name, one in parameters.items():
                    one -= 0.1 * gradients[name]
    """
    done = run(tmp_path, source, options=("--steps", "3", "--profiled", "1"))
    assert done.step["kind"] == "train 16x8"
    assert "inference" not in done.err


def test_evaluation_with_an_optimizer_that_never_steps_is_found(tmp_path: Path) -> None:
    """Programs make their optimizer before they look for their option to evaluate only."""
    source = f"""
{TRAINING}
model.eval()
with torch.no_grad():
    for _ in range(60): model(torch.ones(4, 8))
"""
    done = run(tmp_path, source, options=("--continue",))
    assert (done.code, done.step["kind"]) == (0, "forward 4x8")
    assert "--step-by forward" in done.warnings
    profiled = run(tmp_path, source, options=(*SHORT, "--step-by", "forward"))
    assert profiled.step["kind"] == "forward 4x8" and "never stepped" not in profiled.warnings


def test_deleted_optimizer_is_not_awaited(tmp_path: Path) -> None:
    """The script updates its weights by hand."""
    source = """
        import gc, torch
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters())
        del optimizer
        gc.collect()
        for _ in range(40):
            model(torch.ones(4, 8)).sum().backward()
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.1 * one.grad
                    one.grad = None
    """
    done = run(tmp_path, source, options=("--steps", "3", "--profiled", "1"))
    assert done.step["kind"] == "train 4x8"


def test_step_by_forward_option_is_used(tmp_path: Path) -> None:
    source = TRAINING + "for _ in range(50): model(torch.ones(2, 8)); train()"
    done = run(tmp_path, source, options=(*SHORT, "--step-by", "forward"))
    assert done.step["kind"].startswith(("train", "forward"))
    found = run(tmp_path, source, options=(*SHORT, "--step-by", "optimizer"))
    assert found.step["kind"] == "train 2x8"


def test_searching_for_torch_does_not_count_as_import(tmp_path: Path) -> None:
    """As libraries do that can live without it."""
    source = (
        "import importlib.util, sys\nassert importlib.util.find_spec('torch').origin\n"
        "assert 'torch' not in sys.modules\n" + TRAINING + "for _ in range(50): train()"
    )
    done = run(tmp_path, source, own_process=True)
    assert done.step["kind"] == "train 4x8"


def _events(path: Path) -> list[dict[str, str]]:
    events: list[dict[str, str]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_operators_have_their_own_lines(tmp_path: Path) -> None:
    write(tmp_path, "", "pkg/__init__.py")
    write(
        tmp_path,
        """
        import torch
        weight = torch.rand(96, 96, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.01)
        def forward(x):
            n = len(x) * 2
            x = x @ weight
            x = x @ weight.T
            x = x / n
            return x
        for _ in range(40):
            loss = forward(torch.ones(512, 96)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
        "pkg/train.py",
    )
    options = ("--warmup", "2", "--steps", "3", "--profiled", "2")
    done = run_command(tmp_path, *options, "-m", "pkg.train")
    assert done.diagnosis is not None, done.err
    lines = {row["where"]: row["text"] for row in done.diagnosis["lines"]}
    assert lines["pkg/train.py:7"] == "x = x @ weight"
    assert lines["pkg/train.py:8"] == "x = x @ weight.T"
    assert lines["pkg/train.py:9"] == "x = x / n"
    assert "pkg/train.py:6" not in {row["where"] for row in done.diagnosis["ops"]}
    products = {row["where"] for row in done.diagnosis["ops"] if row["name"] == "aten::mm"}
    assert products == {"pkg/train.py:7", "pkg/train.py:8"}
    # Recording operators is not recorded itself.
    names = {piece["name"] for piece in done.diagnosis["timeline"]}
    assert "aten::mm" in names
    assert not any("operators.py" in name for name in names)


def test_start_of_the_script_is_not_a_step(tmp_path: Path) -> None:
    """Its first step is the only one of its kind, and does not count what came before it."""
    source = f"""
import time
{TRAINING}
def other(rows):
    model(torch.ones(rows, 8)).mean().backward()
    optimizer.step()
time.sleep(10)
other(2)
for number in range(30):
    train()
    if number == 0: other(3)
"""
    done = run(
        tmp_path, source, options=("--warmup", "4", "--steps", "3", "--profiled", "0", "--verbose")
    )
    others = {kind["kind"]: kind for kind in done.step["others"]}
    assert {name: kind["steps"] for name, kind in others.items()} == {
        "train 2x8": 1,
        "train 3x8": 1,
    }
    assert others["train 2x8"]["wall_ns"] < 10e9
    assert "train 3x8: 1 step of " in done.err


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are given on Linux")
def test_cpu_wait_is_distinguished_from_work(tmp_path: Path) -> None:
    """Its one core is another process's too: half of its time is waiting, at no line."""
    core = max(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, {{{core}}})\n"
    source = (
        pinned
        + TRAINING.replace("8, 8", "512, 512").replace("8, 1", "512, 1").replace("4, 8", "64, 512")
        + "for _ in range(400): train()"
    )
    with subprocess.Popen([sys.executable, "-c", pinned + "while True: pass"]) as other:
        try:
            done = run(tmp_path, source, options=("--warmup", "20", "--steps", "100"))
        finally:
            other.kill()
    assert done.diagnosis is not None, done.err
    overhead = done.diagnosis["account"]["overhead"]
    assert overhead["parts"]["core"] > 0.25 * done.step["wall_ns"]
    groups = done.diagnosis["account"].values()
    assert sum(group["ns"] for group in groups) == pytest.approx(done.step["wall_ns"])
    assert "waited for a CPU core" in done.diagnosis["verdict"]["why"]
    assert not any(row["parts"].get("core") for row in done.diagnosis["lines"])


def test_jax_steps_after_the_windows_are_part_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    source = """
        import jax, jax.numpy as jnp
        @jax.jit
        def step(weights):
            return weights - 0.1 * jax.grad(lambda w: (w ** 2).sum())(weights)
        weights = jnp.ones((64, 64))
        for _ in range(300):
            weights = step(weights).block_until_ready()
        print(float(weights.sum()) < 64 * 64)
    """
    done = run(tmp_path, source, options=("--steps", "3", "--profiled", "1", "--continue"))
    assert done.out == "True\n"
    assert done.diagnosis is not None
    parts = {part["name"]: part["count"] for part in done.diagnosis["run"]["parts"]}
    assert parts["train"] > 250
