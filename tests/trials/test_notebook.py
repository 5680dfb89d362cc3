"""What is written down of a script's own precision."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.trials.notebook import Notebook  # noqa: E402


def precision_of(module: Any, *inputs: int) -> str | None:
    notebook = Notebook(torch, seed=0, has_dropout=False, nudged=False, exact=False)
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
