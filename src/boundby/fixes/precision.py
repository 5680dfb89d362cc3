"""Reduced or full precision: matrix products in tf32 or bfloat16, autocast on and off."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.runtime.float32_settings import float32_allowed
from boundby.runtime.modules import parameters_of
from boundby.runtime.step_hooks import StepHook, step_hook_active


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """The precision of `torch.set_float32_matmul_precision`, regardless of what the script sets."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        before, choose = torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision
        backends = torch.backends
        by_backend = [
            (setting, setting.fp32_precision)
            for setting in (backends.mkldnn.matmul, backends.cuda.matmul)
            if hasattr(backends, "fp32_precision")
        ]
        choose(precision)
        note(f"matmul precision {precision}")
        swaps.swap(torch, "set_float32_matmul_precision", lambda _: lambda wanted: None)

        def restore() -> None:
            choose(before)
            # It sets these too, and not to what they were.
            for setting, value in by_backend:
                setting.fp32_precision = value

        swaps.later(restore)

    with when_torch_arrives(arrived):
        yield


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """tf32 for products, convolutions and recurrent layers; the latter two are torch's default."""
    with matmul_precision("high"), when_torch_arrives(_cudnn_in_tf32):
        yield


def _cudnn_in_tf32(torch: Any, swaps: PatchSet) -> None:
    allowed, cudnn = float32_allowed(torch)["cuda"], torch.backends.cudnn
    if hasattr(torch.backends, "fp32_precision"):
        for layers, setting in (("convolutions", cudnn.conv), ("recurrent", cudnn.rnn)):
            if allowed[layers] == "float32":
                before = setting.fp32_precision
                setting.fp32_precision = "tf32"
                swaps.later(functools.partial(setattr, setting, "fp32_precision", before))
                note(f"tf32 {layers}")
    elif allowed["convolutions"] == "float32":
        cudnn.allow_tf32 = True
        swaps.later(functools.partial(setattr, cudnn, "allow_tf32", False))
        note("tf32 convolutions")


class _Autocast(StepHook):
    """Autocast from the beginning of the forward until backward, so that it includes the loss.

    Without gradients, it ends with the call. A script that uses autocast itself is not changed.
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._entered: Any = None

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._entered is not None or not hasattr(called, "parameters"):
            return
        import torch

        parameter = next(parameters_of(called), None)
        if parameter is None or parameter.dtype != torch.float32:
            return
        device = parameter.device.type
        if torch.is_autocast_enabled(device):
            return
        self._entered = torch.autocast(device, getattr(torch, self._dtype))
        self._entered.__enter__()
        note(f"autocast to {self._dtype}")

    def call_ends(self, called: Any, result: Any) -> None:
        import torch

        if not torch.is_grad_enabled():
            self._leave()

    def backward_begins(self, roots: Any) -> None:
        self._leave()

    def step_ended(self, kind: str) -> None:
        self._leave()

    def _leave(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)


def autocast(dtype: str = "bfloat16") -> contextlib.AbstractContextManager[None]:
    return step_hook_active(_Autocast(dtype))


def switch_autocast_off(torch: Any, swaps: PatchSet) -> None:
    """Every autocast of the script has no effect from now on."""

    def disabled(original: Any) -> Any:
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if self._enabled:
                note("autocast off")
            self._enabled = False

        return __init__

    swaps.swap(torch.amp.autocast_mode.autocast, "__init__", disabled)


TF32 = Fix(
    name="tf32",
    change='torch.set_float32_matmul_precision("high")',
    apply=tf32,
    always_tried=True,
    precision="tf32",
    devices=("cuda",),
    slot="precision",
)
BFLOAT16_PRODUCTS = Fix(
    name="bf16-products",
    change='torch.set_float32_matmul_precision("medium")',
    apply=functools.partial(matmul_precision, "medium"),
    always_tried=True,
    precision="bfloat16",
    devices=("cpu",),  # on CUDA it is only tf32
    slot="precision",
)
AUTOCAST = Fix(
    name="autocast",
    change="with torch.autocast(device.type, torch.bfloat16): ...  # around forward and loss",
    apply=autocast,
    always_tried=True,
    precision="bfloat16",
    slot="precision",
    covers=("float32-activations",),
)
NO_AUTOCAST = Fix(
    name="no-autocast",
    change="torch.autocast(device.type, enabled=False)",
    apply=functools.partial(when_torch_arrives, switch_autocast_off),
    slot="precision",
)
