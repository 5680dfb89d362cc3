"""Compiled kernels are traced to the lines they came from."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = """
import json
import sys
from boundby.capture.torch.provenance import enable_provenance, kernel_lines
if sys.argv[1] == "ask":
    enable_provenance()
import torch

def work(x):
    y = torch.sin(x) * FACTOR
    return y.cos().sum()

x = torch.randn(64, 64, requires_grad=True)
torch.compile(work)(x).backward()
print(json.dumps(kernel_lines()))
"""


# Of this run of the tests alone: nothing was compiled before with this number.
FACTOR = 2 + random.SystemRandom().random()


def write(path: Path, source: str = SCRIPT) -> Path:
    path.write_text(source.replace("FACTOR", str(FACTOR)))
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("compiled") / "train.py")


def run(path: Path, how: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(path), how], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def first(script: Path) -> dict[str, str]:
    """What the first process knew, which had to compile."""
    lines: dict[str, str] = run(script, "ask")
    return lines


def test_fused_kernel_from_cache_has_its_line(script: Path, first: dict[str, str]) -> None:
    assert any(name.startswith("cpp_fused") for name in first)
    assert {line.partition("train.py:")[2] for line in first.values()} <= {"10", "11"}
    assert run(script, "ask") == first


@pytest.mark.usefixtures("first")
def test_without_request_provenance_is_empty(script: Path) -> None:
    assert run(script, "not") == {}


def test_cached_kernels_have_lines_of_the_current_script(
    first: dict[str, str], tmp_path: Path
) -> None:
    """Compiled for a script that has two lines more now, in another folder."""
    lines = run(write(tmp_path / "train.py", "\n\n" + SCRIPT), "ask")
    assert lines.keys() == first.keys()
    assert set(lines.values()) <= {"train.py:12", "train.py:13"}


@pytest.mark.usefixtures("first")
def test_removed_lines_are_reported_as_gone(tmp_path: Path) -> None:
    renamed = SCRIPT.replace("y = torch.sin(x)", "z = torch.sin(x)")
    renamed = renamed.replace("y.cos()", "z.cos()").replace(
        "print(json.dumps(kernel_lines()))",
        "from boundby.capture.torch.compiled_code import compiled_graphs\n"
        "print(json.dumps([one.is_of_another_script for one in compiled_graphs().values()]))",
    )
    assert True in run(write(tmp_path / "train.py", renamed), "ask")
