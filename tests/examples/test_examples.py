"""Every example runs unchanged, and its diagnosis under `boundby run` is consistent."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import boundby
from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import NO_LINE
from boundby.report.page import diagnosis_page
from tests.fork_server import run_python
from tests.page.showing import check_bars, check_dots, show, walk

if TYPE_CHECKING:
    from tests.browser import Browser

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A script, arguments that make it small, and how the names of its steps begin."""

    script: str
    few_steps: str
    enough_steps: str
    kind: str
    other_kinds: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"examples/{self.script}"


EXAMPLES = [
    Example(
        script="char_gpt.py",
        few_steps="--layers 1 --width 32 --context 16 --batch 4 --steps 3 --write 5",
        enough_steps="--layers 2 --width 64 --context 64 --batch 8 --steps 100",
        kind="train",
    ),
    Example(
        script="image_classifier.py",
        few_steps="--images 32 --batch 16 --size 16 --width 8 --blocks 1 --epochs 1",
        enough_steps="--images 1600 --batch 16 --width 8 --epochs 1",
        kind="train",
    ),
    Example(
        script="decode.py",
        few_steps="--layers 1 --width 96 --prompt 8 --new 4 --replies 1",
        enough_steps="--layers 4 --prompt 24 --new 32 --replies 4",
        kind="forward 1x1",
        other_kinds=("forward 1x24",),
    ),
    Example(
        script="slow_mlp.py",
        few_steps="--layers 3 --width 32 --batch 16 --steps 3",
        enough_steps="--layers 12 --steps 100",
        kind="train",
    ),
    Example(
        script="jax_gpt.py",
        few_steps="--layers 1 --width 32 --tokens 64 --length 16 --batch 2 --steps 3",
        enough_steps="",
        kind="",
    ),
]
# Runs of JAX programs are tested in tests/capture/jax.
WATCHED = [example for example in EXAMPLES if not example.script.startswith("jax_")]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Roofs of this machine, measured once for all examples."""
    pytest.importorskip("torch")
    file = tmp_path_factory.mktemp("machine") / "machine.json"
    store.write(boundby.machine("cpu", quick=True), file)
    return file


@pytest.fixture(params=EXAMPLES, ids=lambda example: example.script)
def example(request: pytest.FixtureRequest) -> Example:
    given: Example = request.param
    return given


@pytest.fixture(scope="module", params=WATCHED, ids=lambda example: example.script)
def watched(request: pytest.FixtureRequest) -> Example:
    given: Example = request.param
    return given


@pytest.fixture(scope="module")
def diagnosis(
    watched: Example, machine: Path, tmp_path_factory: pytest.TempPathFactory
) -> Diagnosis:
    """What `boundby run` says of an example: run once for all the tests that look at it."""
    file = tmp_path_factory.mktemp("diagnosis") / "diagnosis.json"
    options = ["run", "--quiet", "--machine", str(machine), "--json", str(file)]
    ended = _python("-m", "boundby", *options, watched.path, *watched.enough_steps.split())
    assert ended.returncode == 0, ended.stderr
    return msgspec.json.decode(file.read_bytes(), type=Diagnosis)


def test_example_runs_in_plain_python(example: Example) -> None:
    if example not in WATCHED:
        pytest.importorskip("jax")
    ended = _python(example.path, *example.few_steps.split())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_every_example_is_tested() -> None:
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == {example.script for example in EXAMPLES}


def test_examples_do_not_import_boundby(example: Example) -> None:
    assert "boundby" not in (ROOT / example.path).read_text()


def test_account_of_an_example_adds_up(diagnosis: Diagnosis) -> None:
    attribution = sum(group.ns for group in diagnosis.account.groups().values())
    assert attribution == pytest.approx(diagnosis.step.wall_ns, rel=1e-3)


def test_source_lines_add_up_to_the_step(diagnosis: Diagnosis) -> None:
    # Waiting for a core, while other tests have them, is no line's.
    waited = diagnosis.account.overhead.parts.get("core", 0.0)
    own_ns = diagnosis.step.wall_ns - waited
    assert sum(row.ns for row in diagnosis.lines) == pytest.approx(own_ns)
    for name, group in diagnosis.account.groups().items():
        at_lines = sum(row.groups.get(name, 0.0) for row in diagnosis.lines)
        assert at_lines == pytest.approx(group.ns - waited * (name == "overhead"), abs=1.0)
    lineless = sum(row.ns for row in diagnosis.lines if row.where == NO_LINE)
    assert lineless < 0.02 * diagnosis.step.wall_ns


def test_nearly_all_operators_have_costs(diagnosis: Diagnosis) -> None:
    assert diagnosis.account.unknown.share < 0.03


def test_step_of_an_example_is_found(watched: Example, diagnosis: Diagnosis) -> None:
    assert diagnosis.step.kind.startswith(watched.kind)
    assert diagnosis.step.wall_source == "clean"
    assert diagnosis.step.samples_ns


def test_top_lines_are_in_the_example(watched: Example, diagnosis: Diagnosis) -> None:
    lines = (ROOT / watched.path).read_text().splitlines()
    assert diagnosis.lines
    for row in diagnosis.lines[:5]:
        file, _, number = row.where.rpartition(":")
        assert file.endswith(watched.script)
        # A statement over several lines is shown whole.
        assert row.text and row.text.startswith(lines[int(number) - 1].strip())


def test_operators_are_compared_with_their_roofs(diagnosis: Diagnosis) -> None:
    fractions = [op.roof_fraction for op in diagnosis.ops if op.roof_fraction is not None]
    assert fractions
    assert min(fractions) >= 0


def test_operator_above_its_roof_is_marked(diagnosis: Diagnosis) -> None:
    unsuspected = [op.roof_fraction or 0.0 for op in diagnosis.ops if not op.roof_suspect]
    assert max(unsuspected) <= 1.05


def test_other_kinds_of_step_are_distinguished(watched: Example, diagnosis: Diagnosis) -> None:
    others = sorted(other.kind for other in diagnosis.step.others)
    assert len(others) == len(watched.other_kinds)
    assert all(map(str.startswith, others, watched.other_kinds))


def test_page_of_an_example_loads_without_errors(
    diagnosis: Diagnosis, browser: Browser, tmp_path: Path
) -> None:
    page = show(browser, tmp_path, diagnosis_page(diagnosis))
    walk(page)
    assert page.complaints() == []
    assert page.requests() == []
    check_bars(page, diagnosis)
    check_dots(page, diagnosis)


def _python(*args: str) -> subprocess.CompletedProcess[str]:
    # On the CPU on every machine: the shapes above are for a small one.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return run_python(list(args), cwd=ROOT, env=environment, timeout_s=900)
