"""Python and torch in a program under boundby are as without it, during steps and after."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from boundby.capture.own_files import is_own_file
from tests.scripts import run, run_python

# What a program may see. Names in PATCHED are wrapped while boundby watches, and only then.
STATE = """
import ctypes, gc, inspect, os, random, signal, sys, threading, warnings
import numpy, torch

PATCHED = {"__call__", "step", "_patch_step_function", "__next__", "backward", "compile"}
PROFILER = {"_prepare_profiler", "_disable_profiler", "_is_profiler_enabled"}
REMEMBERED = {"_cupti_monitor_module", "_cupti_monitor_checked"}  # by torch, when it first profiles
TYPES = [torch.Tensor, torch._C.TensorBase, torch.nn.Parameter, torch.nn.Module, torch.optim.SGD]
is_sequence = ctypes.pythonapi.PySequence_Check
is_sequence.argtypes, is_sequence.restype = [ctypes.py_object], ctypes.c_int

def attributes(owner, leave=()):
    return {name: value for name, value in vars(owner).items() if name not in leave}

def state(leave=()):
    # First of all: what is asked below must not be what changes it.
    drawn = torch.random.get_rng_state().tolist()
    drawn += [random.getstate(), repr(numpy.random.get_state())]
    tensor = torch.ones(())
    return {
        "types": [attributes(one, {*leave, "__annotations__", "__doc__"}) for one in TYPES],
        "slots": [is_sequence(tensor), is_sequence(model)],
        "list of 0-d": torch.tensor([tensor]).tolist(),
        "functional": attributes(torch.nn.functional, leave),
        "autograd": attributes(torch.autograd, leave),
        "profiler": attributes(torch.autograd.profiler, {*leave, *REMEMBERED}),
        "module hooks": [len(getattr(torch.nn.modules.module, name)) for name in
                         ("_global_forward_hooks", "_global_forward_pre_hooks")],
        "environment": dict(os.environ),
        "path": list(sys.path),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "filters": list(warnings.filters),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "switch": sys.getswitchinterval() if not leave else None,
        "recursion": sys.getrecursionlimit(),
        "excepthook": sys.excepthook,
        "trace": sys.gettrace() if not leave else None,
        "garbage": (gc.isenabled(), gc.get_threshold()),
        "working folder": os.getcwd(),
        "matmul": torch.get_float32_matmul_precision(),
        "random": drawn,
    }

def difference(one, other):
    if isinstance(one, list) and one and isinstance(one[0], dict):
        return [difference(*pair) for pair in zip(one, other)]
    if isinstance(one, dict):
        return [name for name in {*one, *other} if one.get(name) != other.get(name)]
    return one, other

def compare(before, after):
    for name in before:
        if before[name] != after[name]:
            print("changed:", name, difference(before[name], after[name]))

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.nn.Linear(1, 1)  # what torch loads when it is first used
model(torch.ones(1, 8)).sum().backward()

def train():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).mean()
    loss.backward()
    optimizer.step()
    return loss
"""


def test_program_is_unchanged_during_and_after_a_run(tmp_path: Path) -> None:
    source = f"""{STATE}
leave = PATCHED | PROFILER
before = state(leave)
for _ in range(30):
    train()
    # While values are looked at, after the timed steps, torch's own module hooks are in use.
    now = state(leave)
    looked_at = {{"autograd", "module hooks"}} & {{n for n in before if before[n] != now[n]}}
    compare({{n: v for n, v in before.items() if n not in looked_at}}, now)
compare(before, state(leave))
print("done")
"""
    options = ("--warmup", "2", "--steps", "3", "--profiled", "2", "--continue", "--quiet")
    done = run(tmp_path, source, options=options)
    assert done.code == 0, done.err
    assert done.out == "done\n"


def test_a_warning_that_was_shown_is_not_repeated(tmp_path: Path) -> None:
    """Python repeats all of them when anyone changes the filters, if only for a moment."""
    source = f"""{STATE}
for _ in range(30):
    train()
    warnings.warn("shown once")
"""
    options = ("--warmup", "2", "--steps", "3", "--profiled", "2", "--continue", "--quiet")
    done = run(tmp_path, source, options=options)
    assert done.code == 0
    assert done.err.count("UserWarning: shown once") == 1, done.err


FROM_PYTHON = {
    "diagnose": "boundby.diagnose(train, warmup=2, steps=3, profiled=2, machine=machine)",
    "watch": """
with boundby.watch(warmup=2, steps=3, profiled=2, machine=machine) as watching:
    for _ in range(30):
        train()
        watching.step()
""",
}


@pytest.mark.parametrize("how", FROM_PYTHON)
def test_program_is_unchanged_after_diagnose(tmp_path: Path, how: str) -> None:
    source = f"""{STATE}
import boundby
from tests.machines import round_machine
machine = round_machine()
before = state()
{FROM_PYTHON[how]}
compare(before, state())
print("done")
"""
    done = run_python(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize("folder", ["boundby", "a b", "größe/boundby", "other"])
def test_own_files_are_recognised_by_location(tmp_path: Path, folder: str) -> None:
    import boundby.cli.run

    assert is_own_file(boundby.cli.run.__file__)
    assert is_own_file("boundby/cli/run.py")
    script = tmp_path / folder / "train.py"
    assert not is_own_file(str(script))
    assert not is_own_file(f"{folder}/train.py")
    assert not is_own_file(str(tmp_path / folder / ".venv/lib/site-packages/other/cli/run.py"))


def test_own_files_are_recognised_through_a_symbolic_link(tmp_path: Path) -> None:
    import boundby

    link = tmp_path / "link"
    link.symlink_to(Path(boundby.__file__).parent)
    assert is_own_file(str(link / "cli" / "run.py"))


def test_script_in_a_folder_named_boundby_has_lines(tmp_path: Path) -> None:
    source = f"{STATE}\nfor _ in range(30): train()\n"
    folder = tmp_path / "boundby"
    folder.mkdir()
    options = ("--warmup", "2", "--steps", "3", "--profiled", "1", "--quiet")
    done = run(folder, source, options=options)
    assert done.code == 0, done.err
    diagnosis: dict[str, Any] | None = done.diagnosis
    assert diagnosis is not None
    assert any("train.py:" in line["where"] for line in diagnosis["lines"])


def test_modes_of_the_script_see_only_its_operators(tmp_path: Path) -> None:
    source = f"""{STATE}
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

class Functions(TorchFunctionMode):
    seen = 0
    def __torch_function__(self, function, types, args=(), kwargs=None):
        Functions.seen += 1
        return function(*args, **(kwargs or {{}}))

class Operators(TorchDispatchMode):
    seen = 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        Operators.seen += 1
        return function(*args, **(kwargs or {{}}))

steps = []
with Functions(), Operators():
    for _ in range(30):
        before = Functions.seen, Operators.seen
        train()
        steps.append((Functions.seen - before[0], Operators.seen - before[1]))
# The profiler's own functions are seen while it runs.
functions = {{one for one, _ in steps[1:7] + steps[10:]}}
print(len(functions), len({{one for _, one in steps[1:]}}), steps)
"""
    options = ("--warmup", "2", "--steps", "3", "--profiled", "2", "--continue", "--quiet")
    done = run(tmp_path, source, options=options)
    assert done.code == 0, done.err
    assert done.out.startswith("1 1 "), done.out
