"""What is written down of a script: its own precision, its gradients."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.prove.numerics_recorder import EXACT_STEPS, NumericsRecorder  # noqa: E402
from boundby.prove.process import environment  # noqa: E402


def precision_of(module: Any, *inputs: int) -> str | None:
    notebook = NumericsRecorder(torch, seed=0, has_dropout=False, nudged=False, exact=False)
    notebook.call_begins(module, (module, torch.ones(*inputs)), {})
    return notebook.precision


@pytest.mark.skipif(
    not hasattr(torch.backends, "fp32_precision"), reason="this torch has the old switches alone"
)
def test_settings_beside_which_the_old_switches_cannot_be_read() -> None:
    linear, convolution = torch.nn.Linear(4, 4), torch.nn.Conv1d(4, 4, 1)
    settings = torch.backends.mkldnn.conv, torch.backends.cuda.matmul
    before = [setting.fp32_precision for setting in settings]
    settings[0].fp32_precision, settings[1].fp32_precision = "bf16", "tf32"
    try:
        assert precision_of(linear, 2, 4) == "float32"
        assert precision_of(convolution, 2, 4, 4) == "tf32"
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


def test_gradients_of_the_first_step_and_of_the_last_without_dropout() -> None:
    """What is captured or compiled is replayed by then, which it is not in the first."""
    notebook = NumericsRecorder(torch, seed=0, has_dropout=False, nudged=False)
    weights = [torch.ones(3, requires_grad=True), torch.ones(4, requires_grad=True)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    try:
        for step in range(EXACT_STEPS + 2):
            weights[0].grad, weights[1].grad = torch.full((3,), step + 1.0), torch.zeros(4)
            for _ in range(2):  # as with two optimizers: the first stands for both
                notebook.optimizer_begins(optimizer)
                weights[0].grad = torch.full((3,), 7.0)
            notebook.step_ended()
    finally:
        notebook.close()
    written = notebook.written()
    assert written["gradients"] == pytest.approx([3**0.5, 0.0])
    assert written["later_gradients"] == pytest.approx([EXACT_STEPS * 3**0.5, 0.0])


def test_what_is_compiled_without_dropout_is_kept_for_nobody() -> None:
    """It would be found by the name of dropout, by whoever compiles the same model with it."""
    config = pytest.importorskip("torch._functorch.config")
    before = config.enable_autograd_cache
    notebook = NumericsRecorder(torch, seed=0, has_dropout=True, nudged=False)
    try:
        assert config.enable_autograd_cache is False
        for _ in range(EXACT_STEPS):
            notebook.step_ended()
        assert config.enable_autograd_cache is before
    finally:
        notebook.close()
    assert config.enable_autograd_cache is before


def test_trials_keep_what_they_compile_to_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "the user's own")
    found = environment({}, compiled=tmp_path / "compiled")
    assert found["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compiled")
    assert environment({})["TORCHINDUCTOR_CACHE_DIR"] == "the user's own"


# Compiled as trials are while dropout is off, or as a script compiles it; two calls are compared.
_COMPILING = """
import sys
import torch
from boundby.prove.numerics_recorder import NumericsRecorder
if sys.argv[1] == "without":
    notebook = NumericsRecorder(torch, seed=0, has_dropout=True, nudged=False)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
compiled, x = torch.compile(model), torch.ones(4, 8)
first = compiled(x)
first.sum().backward()
print("alike" if torch.equal(first, compiled(x)) else "drawn anew")
"""


def test_a_model_compiled_without_dropout_is_not_found_by_who_wants_it_with(tmp_path: Path) -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", _COMPILING, how],
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for how in ("without", "with")
    ]
    assert found == ["alike", "drawn anew"]
