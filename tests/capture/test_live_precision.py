"""What float32 products may be computed in, read from a real torch that was set in every way."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.runtime.float32_settings import float32_allowed  # noqa: E402
from tests.fork_server import run_python  # noqa: E402
from tests.scripts import environment  # noqa: E402

NEW = hasattr(torch.backends, "fp32_precision")


def allowed_after(*settings: str) -> list[Any]:
    """In a process of its own, in which a warning is an error: what is read after each setting.

    What torch says of itself by either of its ways has to be the same before and after.
    """
    lines = [
        "import json, warnings",
        "import torch",
        "warnings.simplefilter('error')",
        "from boundby.runtime.float32_settings import float32_allowed",
        "read = []",
    ]
    for setting in settings:
        lines += [setting, "read.append(float32_allowed(torch))"]
        lines += ["assert read[-1] == float32_allowed(torch)"]
    code = "\n".join([*lines, "print(json.dumps(read))"])
    done = run_python(["-c", code], cwd=Path.cwd(), env=environment())
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # torch writes its own warnings there, regardless of filters
    found: list[Any] = json.loads(done.stdout)
    return found


def test_old_precision_switches_are_read() -> None:
    usual, high, medium, precise, loose = allowed_after(
        "pass",
        "torch.set_float32_matmul_precision('high')",
        "torch.set_float32_matmul_precision('medium')",
        "torch.set_float32_matmul_precision('highest'); torch.backends.cudnn.allow_tf32 = False",
        "torch.backends.cuda.matmul.allow_tf32 = True",
    )
    assert usual["cuda"] == {"products": "float32", "convolutions": "tf32", "recurrent": "tf32"}
    assert usual["cpu"]["products"] == "float32"
    assert high["cuda"]["products"] == "tf32"
    assert medium["cuda"]["products"] == "tf32"
    assert medium["cpu"]["products"] == "bfloat16"
    assert medium["cpu"]["convolutions"] in ("float32", None)
    assert set(precise["cuda"].values()) == {"float32"}
    assert loose["cuda"]["products"] == "tf32"
    assert loose["cuda"]["convolutions"] == "float32"


@pytest.mark.skipif(not NEW, reason="this torch has the old switches alone")
def test_new_precision_settings_are_read_without_old_switches() -> None:
    products, convolutions, cpu, everything, without = allowed_after(
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
        "torch.backends.mkldnn.conv.fp32_precision = 'bf16'",
        "torch.backends.fp32_precision = 'tf32'",
        "torch.backends.mkldnn.enabled = False",
    )
    assert products["cuda"]["products"] == "tf32"
    assert products["cuda"]["convolutions"] == "tf32"
    assert convolutions["cuda"]["convolutions"] == "float32"
    assert convolutions["cuda"]["recurrent"] == "tf32"
    assert cpu["cpu"] == {"products": "float32", "convolutions": "bfloat16", "recurrent": "float32"}
    assert everything["cpu"]["products"] == "tf32"
    assert everything["cuda"]["convolutions"] == "float32"  # was set by itself
    assert set(without["cpu"].values()) == {"float32"}


@pytest.mark.parametrize("level", ["highest", "high", "medium"])
def test_torch_with_old_precision_switches_only_is_read(level: str) -> None:
    old = SimpleNamespace(
        get_float32_matmul_precision=lambda: level,
        backends=SimpleNamespace(
            cudnn=SimpleNamespace(allow_tf32=False),
            mkldnn=SimpleNamespace(is_available=lambda: True, enabled=True),
        ),
    )
    read = float32_allowed(old)
    assert read["cuda"]["products"] == ("float32" if level == "highest" else "tf32")
    assert read["cuda"]["convolutions"] == "float32"
    assert read["cpu"]["convolutions"] is None
