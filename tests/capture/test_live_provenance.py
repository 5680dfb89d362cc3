"""Compiled kernels are traced to the lines they came from."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
    y = torch.sin(x) * 2
    return y.cos().sum()

x = torch.randn(64, 64, requires_grad=True)
torch.compile(work)(x).backward()
print(json.dumps(kernel_lines()))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a compiler's cache beside it, which all tests here share: headers take it longest."""
    path = tmp_path_factory.mktemp("compiled") / "train.py"
    path.write_text(SCRIPT)
    return path


def run(path: Path, how: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(path), how],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(path.parent / "cache")},
    )
    lines: dict[str, str] = json.loads(done.stdout)
    return lines


@pytest.fixture(scope="module")
def first(script: Path) -> dict[str, str]:
    """What the first process knew, which had to compile."""
    return run(script, "ask")


def test_fused_kernel_from_cache_has_its_line(script: Path, first: dict[str, str]) -> None:
    assert any(name.startswith("cpp_fused") for name in first)
    assert {line.partition("train.py:")[2] for line in first.values()} <= {"10", "11"}
    assert run(script, "ask") == first


@pytest.mark.usefixtures("first")
def test_without_request_provenance_is_empty(script: Path) -> None:
    assert run(script, "not") == {}


def test_cached_kernels_have_lines_of_the_current_script(
    script: Path, first: dict[str, str], tmp_path: Path
) -> None:
    """Compiled for a script that has two lines more now, in another folder."""
    copied = tmp_path / "train.py"
    copied.write_text("\n\n" + SCRIPT)
    cache = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(script.parent / "cache")}
    done = subprocess.run(
        [sys.executable, str(copied), "ask"], capture_output=True, text=True, check=True, env=cache
    )
    assert json.loads(done.stdout).keys() == first.keys()
    assert set(json.loads(done.stdout).values()) <= {"train.py:12", "train.py:13"}


@pytest.mark.usefixtures("first")
def test_removed_lines_are_reported_as_gone(script: Path, tmp_path: Path) -> None:
    copied = tmp_path / "train.py"
    renamed = SCRIPT.replace("y = torch.sin(x) * 2", "z = torch.sin(x) * 2")
    renamed = renamed.replace("y.cos()", "z.cos()").replace(
        "print(json.dumps(kernel_lines()))",
        "from boundby.capture.torch.compiled_code import compiled_graphs\n"
        "print(json.dumps([one.is_of_another_script for one in compiled_graphs().values()]))",
    )
    copied.write_text(renamed)
    cache = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(script.parent / "cache")}
    done = subprocess.run(
        [sys.executable, str(copied), "ask"], capture_output=True, text=True, check=True, env=cache
    )
    assert True in json.loads(done.stdout)
