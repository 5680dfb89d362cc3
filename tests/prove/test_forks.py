"""Forks of a prepared process are what fresh processes are, and are not used where they are not."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from boundby.capture.process.execution import Target
from boundby.prove import fork_likeness as likeness
from boundby.prove import process
from boundby.prove.forks import Forks
from boundby.prove.trial_result import TrialResult

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")

ROOT = Path(__file__).parents[2]
# Packages as an installer leaves them. One takes a function out of torch; one does something that
# no fork would survive.
PACKAGES = {
    "fetched/__init__.py": "from torch.nn.functional import dropout\nloaded_in = []\n",
    "threaded/__init__.py": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "served/__init__.py": "import subprocess\nsubprocess.Popen(['sleep', '20'])\n",
    "things-1.0.dist-info/METADATA": "Name: things\n",
}
SCRIPT = """
import os, random, sys, time
BEFORE
import torch
BETWEEN
import fetched, own
AFTER
import numpy
print("state", [sys.argv, sys.path[0], __name__, __file__, os.getcwd(), os.getsid(0) == os.getpid(),
    os.readlink("/proc/self/fd/0"), os.getpgid(0) == os.getpid(), sys.stdout.line_buffering,
    sorted(os.listdir("/proc/self/fd")), torch.get_num_threads(),
    # Set by an import that torch makes with the first optimizer.
    sorted({*os.environ} - {"TORCHINDUCTOR_CACHE_DIR"})])
print("drawn", [torch.initial_seed(), numpy.random.rand(), random.random()])
torch.manual_seed(0)
torch.set_num_threads(1)
what = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters())
open("written.log", "w").close()
for step in range(400):
    if step == 12 and what == "exits": sys.exit(3)
    if step == 12 and what == "crashes": raise ValueError("on purpose")
    if step == 12 and what == "dies": os.kill(os.getpid(), 11)
    if step == 12 and what == "hangs":
        os.fork()
        time.sleep(600)
    optimizer.zero_grad()
    loss = fetched.dropout(model(torch.randn(32, 64)), 0.5).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""


class Ground:
    """A folder with the script, its own module and the packages."""

    def __init__(self, folder: Path, script: str) -> None:
        self.home = folder / "home"
        self.folder = folder / "passing"
        for place, files in {
            folder / "packages": PACKAGES,
            self.home: {"train.py": script, "own.py": "import os\nhere = os.getpid()\n"},
        }.items():
            for name, text in files.items():
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(dedent(text))
        self.folder.mkdir()
        self.imports = self.folder / "notes.imports"
        self.search_path = [str(ROOT / "src"), str(folder / "packages")]

    def target(self, what: str) -> Target:
        return Target(name="train.py", args=[what], is_module=False)

    def forks(self) -> Forks:
        return Forks(
            target=self.target("steps"),
            imports=self.imports,
            folder=self.folder,
            environment=process.environment({}, self.search_path),
        )

    def observe(
        self,
        what: str = "steps",
        forks: Forks | None = None,
        limit_s: float = 60.0,
        arm: tuple[str, ...] = (),
        reference: bool = False,
    ) -> TrialResult:
        setting = process.Setting(
            target=self.target(what),
            steps=5,
            search_path=self.search_path,
            imports=self.imports,
        )
        wanted = process.Wanted(
            arm=arm, seed=1, reference=reference, forked=forks is not None, limit_s=limit_s
        )
        return process.observe(setting, wanted, folder=self.folder, cwd=self.home, forks=forks)

    def running(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            try:
                if one.cwd() == str(self.home) and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
            except psutil.Error:
                continue
        return found


def script(before: str = "", between: str = "", after: str = "") -> str:
    return SCRIPT.replace("BEFORE", before).replace("BETWEEN", between).replace("AFTER", after)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    made = Ground(tmp_path_factory.mktemp("forks"), script())
    # The first process of all, whose imports are noted.
    made.fresh = made.observe()  # type: ignore[attr-defined]
    return made


@pytest.fixture(scope="module")
def forks(ground: Ground) -> Iterator[Forks]:
    with ground.forks() as made:
        yield made
    assert ground.running() == []


def said(observed: TrialResult, what: str) -> str:
    assert observed.log is not None
    lines = Path(observed.log).read_text().splitlines()
    return next(line for line in lines if line.startswith(what))


def test_a_fork_does_what_a_fresh_process_does(ground: Ground, forks: Forks) -> None:
    fresh: TrialResult = ground.fresh  # type: ignore[attr-defined]
    forked, again = ground.observe(forks=forks), ground.observe(forks=forks)
    assert (fresh.problem, forked.problem, forks.refusal) == (None, None, None)
    assert (fresh.start, forked.start) == ("fresh", "forked")
    # torch and the package are there by the time the script begins, its own module is not.
    assert forks.imported >= 2
    noted = json.loads(ground.imports.read_text())
    assert [one["name"] for one in noted["noted"]][:2] == ["torch", "fetched"]
    assert "own" not in [one["name"] for one in noted["noted"]]
    assert said(fresh, "state") == said(forked, "state")
    # Whatever is seeded from the system is so in each of them.
    assert len({said(one, "drawn") for one in (fresh, forked, again)}) == 3
    # To the last bit; that a function taken out of torch is watched all the same is among it.
    assert fresh.notes == forked.notes == again.notes
    assert fresh.notes.dropouts == 3
    assert fresh.kind == forked.kind
    assert [Path(one).name for one in fresh.wrote if "home" in one] == ["written.log"]
    assert [Path(one).name for one in forked.wrote if "home" in one] == ["written.log"]
    # Where the seconds went: all of them, and in a fork none into imports.
    for one in (fresh, forked):
        assert sum(one.spent.stages().values()) == pytest.approx(one.seconds)
        assert set(one.spent.stages()) == {
            *("start", "torch", "script", "compared", "warmup", "clean", "ending")
        }
    assert (forked.spent.torch_s or 0) < (fresh.spent.torch_s or 0)
    assert forked.prepared_s > 0 == again.prepared_s


def test_treatments_reach_what_is_imported_already(ground: Ground, forks: Forks) -> None:
    arm = ("unfused-optimizer/fused", "float32-products/bf16-products")
    fresh, forked = ground.observe(arm=arm), ground.observe(arm=arm, forks=forks)
    assert fresh.problem is None
    assert fresh.touched == forked.touched != {}
    assert fresh.notes == forked.notes
    reference = ground.observe(forks=forks, reference=True)
    assert reference.notes.losses == ground.fresh.notes.losses  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["exits", "crashes", "dies"])
def test_it_ends_as_a_fresh_one_does(what: str, ground: Ground, forks: Forks) -> None:
    problems = {
        "exits": "the script exited with code 3",
        "crashes": "ValueError: on purpose",
        "dies": "ended by SIGSEGV",
    }
    forked = ground.observe(what, forks)
    assert (forked.start, forked.problem) == ("forked", problems[what])
    assert forked.reported is (what != "dies")
    if what == "crashes":
        assert (
            'in <module>\n    if step == 12 and what == "crashes"'
            in Path(forked.log or "").read_text()
        )
        assert ground.observe(what).problem == problems[what]


def test_one_that_hangs_is_ended_with_all_it_started(ground: Ground, forks: Forks) -> None:
    began = time.monotonic()
    forked = ground.observe("hangs", forks, limit_s=3)
    assert forked.problem == "no end after 3 s: it hangs, or compiles for ever"
    assert time.monotonic() - began < 60
    # The prepared one is all that is left, once the others are gone, and is as good as before.
    for _ in range(600):
        if len(ground.running()) == 1:
            break
        time.sleep(0.1)
    assert len(ground.running()) == 1
    assert ground.observe(forks=forks).problem is None


def test_nothing_is_left_behind_when_its_owner_is_killed(ground: Ground) -> None:
    code = f"""
        import sys
        from pathlib import Path
        from tests.prove.test_forks import Ground
        ground = object.__new__(Ground)
        ground.home, ground.folder = Path({str(ground.home)!r}), Path({str(ground.folder)!r})
        ground.imports = Path({str(ground.imports)!r})
        ground.search_path = {ground.search_path!r}
        with ground.forks() as forks:
            print(ground.observe("hangs", forks))
    """
    before = {one.pid for one in ground.running()}
    owner = subprocess.Popen(
        [sys.executable, "-c", dedent(code)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    # The prepared process, the fork, and the one that the script has forked.
    for _ in range(1200):
        if len({one.pid for one in ground.running()} - before) == 3 or owner.poll() is not None:
            break
        time.sleep(0.1)
    assert owner.poll() is None
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    for _ in range(600):
        left = {one.pid for one in ground.running()} - before
        if not left:
            break
        time.sleep(0.1)
    assert left == set()


def test_what_a_script_sets_before_it_imports_keeps_its_effect(tmp_path: Path) -> None:
    """A variable before torch: no forks. One after it: the packages behind it are not prepared."""
    early = Ground(tmp_path / "early", script(before='os.environ["OMP_NUM_THREADS"] = "3"'))
    assert early.observe().problem is None
    with early.forks() as forks:
        observed = early.observe(forks=forks)
    assert observed.cut
    assert observed.not_forked == "the script sets $OMP_NUM_THREADS before it imports torch"
    late = Ground(
        tmp_path / "late",
        script(between='import warnings; warnings.simplefilter("ignore", FutureWarning)'),
    )
    assert late.observe().problem is None
    with late.forks() as forks:
        observed = late.observe(forks=forks)
    assert observed.problem is None
    assert forks.imported == 1
    assert (
        observed.not_prepared == "the script sets the filters of warnings before it imports fetched"
    )


@pytest.mark.parametrize(
    ("package", "left"),
    [("threaded", "leaves 1 thread running"), ("served", "leaves a process running")],
)
def test_a_package_that_leaves_something_running_is_left_to_the_script(
    package: str, left: str, tmp_path: Path
) -> None:
    ground = Ground(tmp_path, script(after=f"import {package}"))
    assert ground.observe().problem is None
    with ground.forks() as forks:
        assert ground.observe(forks=forks).problem is None
        assert forks.imported == 2
        assert forks.stopped == f"importing {package} {left}"


def test_refusals(ground: Ground, tmp_path: Path) -> None:
    with ground.forks() as forks:
        forks._imports = tmp_path / "none"
        assert not forks.prepare(ground.home)
        assert forks.refusal == "it is not known what the script imports"
    noted = json.loads(ground.imports.read_text())
    noted["files"]["fetched"] = str(ground.home / "fetched.py")
    (tmp_path / "changed").write_text(json.dumps(noted))
    with ground.forks() as forks:
        forks._imports = tmp_path / "changed"
        assert not forks.prepare(ground.home)
        assert forks.refusal == "fetched is not what the script imports by this name"


def test_forks_that_differ_are_seen(ground: Ground) -> None:
    from msgspec.structs import replace

    fresh: TrialResult = ground.fresh  # type: ignore[attr-defined]
    fresh = replace(fresh, samples_ns=[12e6] * 15)
    forked = replace(fresh, start="forked")
    assert likeness.unlike(fresh, [forked]) is None
    slow = replace(forked, samples_ns=[2 * ns for ns in fresh.samples_ns])
    assert "in a fork" in (likeness.unlike(fresh, [slow]) or "")
    # Nothing is wrong with a fork whose host was as much slower meanwhile, and something is where
    # it was faster.
    at = {pace: replace(slow, pace_ns=[pace] * 9) for pace in (20.0, 40.0)}
    then = replace(fresh, pace_ns=[20.0, 21.0, 20.0])
    assert likeness.unlike(then, [at[40.0]]) is None
    assert "in a fork" in (likeness.unlike(then, [at[20.0]]) or "")
    losses = [[1.01 * loss for loss in step] for step in fresh.notes.losses]
    wrong = replace(forked, notes=replace(fresh.notes, losses=losses))
    assert "computes something else" in (likeness.unlike(fresh, [wrong]) or "")
    broken = replace(forked, problem="RuntimeError: bad fork")
    assert likeness.unlike(fresh, [forked, broken]) == "a fork failed: RuntimeError: bad fork"
