"""Benchmarks single operators at a step's own shapes, for predicted kernels.

Never a module, a model or a script: that would be a proof. An operator that cannot be run here
(memory, a missing kernel, a dtype) is left out, and the caller uses the roofs instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from boundby.hardware import index_inputs as indices
from boundby.hardware import onednn
from boundby.hardware.stopwatch import Workload, stopwatch_for
from boundby.model import DTYPE_BYTES, Record, Tensor

Value = Tensor | tuple[Tensor | bool | int | float | None, ...] | bool | int | float | str | None

_SECONDS = 0.02  # for one operator
_PATIENCE_S = 20.0  # for all of them
# The memory limit for the arguments of one, and the share of a CPU's free memory.
_MOST_BYTES, _SHARE_OF_FREE = 8 << 30, 0.2
# Arguments are filled with numbers of this size: products of zeros draw less power and run faster.
_SCALE = 0.02
# Square roots of negative numbers are exceptions in a CPU's library: 768 x 768 of them took 8 ms.
_OF_POSITIVES = ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow")
# These read values that their forward stored in an internal format: with other values they write
# out of bounds.
_LEFT_FOR = (
    "aten::mkldnn_rnn_layer_backward",
    "aten::_cudnn_rnn_backward",
    "aten::miopen_rnn_backward",
)
_BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


class OpBenchmark(Record, frozen=True, kw_only=True):
    """An operator call to be benchmarked.

    `loose`: whether float32 products may be computed with reduced precision, on the matrix units:
    tf32 on CUDA, bfloat16 on a CPU.

    Names that are not torch's: `attention` (q, k, v, dropout, causal, with backward or not, and
    then optionally one of the framework's kernels and a bias), and `adamw`, `adagrad` (a list of
    parameters) and `sgd` (the same, with momentum or not), each as the framework's fused form.
    """

    name: str
    args: tuple[Value, ...]
    loose: bool = False


def time_operators(
    exercises: Sequence[OpBenchmark],
    *,
    kind: str,
    index: int,
    seconds: float = _PATIENCE_S,
    progress: Callable[[str, float], None] = lambda *_: None,
) -> list[float | None]:
    """The device time of each in ns; None for one that does not run here, or if time ran out.

    The first ones are benchmarked first.
    """
    import torch

    deadline = time.monotonic() + seconds

    device = "cpu" if kind == "cpu" else f"cuda:{index}"
    stopwatch = stopwatch_for(kind, index)
    times: list[float | None] = []
    for position, exercise in enumerate(exercises):
        progress("operators", position / len(exercises))
        if time.monotonic() > deadline:
            times.append(None)
            continue
        try:
            with (
                onednn.setting_restored(),
                torch.random.fork_rng([index] if kind == "cuda" else []),
            ):
                work = _work(torch, exercise, device)
                ns: float | None = stopwatch.time(work, seconds=_SECONDS, graphed=True).ns
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            ns = None
        times.append(ns)
    return times


def _work(torch: Any, exercise: OpBenchmark, device: str) -> Workload:
    if exercise.name in _LEFT_FOR:
        raise ValueError("it cannot be run without its forward")
    if _size(exercise.args) > _room(device):
        raise ValueError("too large for the memory that the script leaves")
    torch.set_float32_matmul_precision("medium" if exercise.loose else "highest")
    torch.backends.cudnn.allow_tf32 = exercise.loose
    make_fused = _OWN.get(exercise.name)
    make = _Maker(
        torch,
        device,
        positive=exercise.name.removeprefix("aten::").rstrip("_") in _OF_POSITIVES,
        value_limit=indices.value_limit(exercise.name, exercise.args),
    )
    args = [make.value(value) for value in exercise.args]
    indices.fill_bags(torch, exercise.name, args)
    if make_fused is not None:
        return make_fused(torch, args)
    namespace, _, name = exercise.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    with torch.no_grad():
        operator, placed, named = _overload(packet, args)

    def run() -> Any:
        with torch.no_grad():
            return operator(*placed, **named)

    return run


def _overload(packet: Any, args: list[Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """The overload of an operator that takes these arguments: the one that runs with them.

    An overload with an output argument is tried last; it resizes its output.
    """
    problem: Exception = TypeError(f"{packet} takes no {len(args)} arguments")
    forms = [getattr(packet, name) for name in packet.overloads()]
    for operator in sorted(forms, key=_has_out_argument):
        expected = operator._schema.arguments
        missing = expected[len(args) :]
        if len(expected) < len(args):
            continue
        if not all(argument.has_default_value() for argument in missing):
            continue
        placed, named = _placed(expected[: len(args)], args)
        try:
            for argument in expected[: len(args)]:
                if argument.is_out:
                    named[argument.name] = named[argument.name].new_empty(0)
            operator(*placed, **named)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            problem = error
        else:
            return operator, placed, named
    raise problem


def _has_out_argument(operator: Any) -> bool:
    return any(argument.is_out for argument in operator._schema.arguments)


def _placed(expected: Sequence[Any], args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments, and keyword arguments.

    An argument that was not recorded (strings are not) gets the operator's default, and those after
    it are passed by keyword.
    """
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for place, (argument, value) in enumerate(zip(expected, args, strict=True)):
        optional = argument.type.kind() == "OptionalType"
        if value is None and not optional and argument.has_default_value():
            continue
        if argument.kwarg_only or len(placed) < place:
            named[argument.name] = value
        else:
            placed.append(value)
    return placed, named


def _room(device: str) -> float:
    if device != "cpu":
        return _MOST_BYTES
    import psutil

    free = float(psutil.virtual_memory().available)
    return min(_MOST_BYTES, _SHARE_OF_FREE * free)


def _size(args: Sequence[Any]) -> int:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    listed = [item for arg in args if isinstance(arg, tuple) for item in arg]
    tensors += [item for item in listed if isinstance(item, Tensor)]
    return sum(tensor.elements * DTYPE_BYTES.get(tensor.dtype, 8) for tensor in tensors)


class _Maker:
    """Makes arguments; `value_limit`: integers are below it."""

    def __init__(self, torch: Any, device: str, *, positive: bool, value_limit: int) -> None:
        self._torch, self._device = torch, device
        self._positive, self._value_limit = positive, value_limit

    def value(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, tuple):
            return [self.value(item) for item in value]
        return value

    def _tensor(self, tensor: Tensor) -> Any:
        torch, strides = self._torch, tensor.strides
        dtype = getattr(torch, tensor.dtype)
        if strides is None or len(strides) != len(tensor.shape):
            made = torch.empty(tensor.shape, dtype=dtype, device=self._device)
        else:
            # Filled in memory order: an expanded tensor cannot be written element by element.
            reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, strides, strict=True))
            size = max(0, reach) if tensor.elements else 0
            made = torch.empty(size, dtype=dtype, device=self._device)
        self._fill(made)
        return made if made.shape == tensor.shape else made.as_strided(tensor.shape, strides)

    def _fill(self, made: Any) -> None:
        if made.dtype.is_floating_point:
            made.normal_(0, _SCALE)
            if self._positive:
                made.abs_()
        elif self._value_limit > 1 and made.dtype in (self._torch.int32, self._torch.int64):
            made.random_(0, self._value_limit)
        else:
            # Indices and masks: zero is always valid.
            made.zero_()


def _attention(torch: Any, args: list[Any]) -> Workload:
    query, key, value, dropout, causal, backward, backend, bias = (*args, None, None)[:8]
    grouped = {"enable_gqa": True} if query.shape[-3] != key.shape[-3] else {}
    chosen = getattr(torch.nn.attention.SDPBackend, _BACKENDS[backend]) if backend else None
    inputs = [tensor.requires_grad_(backward) for tensor in (query, key, value)]
    gradient = torch.randn_like(query)

    def run() -> Any:
        only = torch.nn.attention.sdpa_kernel(chosen) if chosen else contextlib.nullcontext()
        with only:
            out = torch.nn.functional.scaled_dot_product_attention(
                *inputs, attn_mask=bias, dropout_p=dropout, is_causal=causal, **grouped
            )
        return torch.autograd.grad(out, inputs, gradient) if backward else out

    return run


def _adamw(torch: Any, args: list[Any]) -> Workload:
    (parameters,) = args
    # As in training: roots and quotients of zeros take a slower path through the arithmetic units.
    gradients, first, second = ([torch.rand_like(p) for p in parameters] for _ in range(3))
    steps = [torch.full((), 1_000.0, device=p.device) for p in parameters]
    constants = {
        "lr": 1e-4,
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.01,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }

    def run() -> Any:
        return torch._fused_adamw_(parameters, gradients, first, second, [], steps, **constants)

    return run


def _sgd(torch: Any, args: list[Any]) -> Workload:
    parameters, with_momentum = args
    gradients = [torch.rand_like(p) for p in parameters]
    buffers = [torch.rand_like(p) for p in parameters] if with_momentum else []
    constants = {
        "lr": 1e-4,
        "momentum": 0.9 if with_momentum else 0.0,
        "weight_decay": 1e-4,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    }

    def run() -> Any:
        return torch._fused_sgd_(parameters, gradients, buffers, **constants)

    return run


def _adagrad(torch: Any, args: list[Any]) -> Workload:
    (parameters,) = args
    gradients, sums = ([torch.rand_like(p) for p in parameters] for _ in range(2))
    steps = [torch.full((), 1_000.0, device=p.device) for p in parameters]
    constants = {
        "lr": 1e-4,
        "lr_decay": 0.0,
        "weight_decay": 0.0,
        "eps": 1e-10,
        "maximize": False,
    }

    def run() -> Any:
        return torch._fused_adagrad_(parameters, gradients, sums, steps, **constants)

    return run


_OWN: dict[str, Callable[[Any, list[Any]], Workload]] = {
    "attention": _attention,
    "adamw": _adamw,
    "sgd": _sgd,
    "adagrad": _adagrad,
}


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense batch of images with the channels fastest."""
    batch, channels, height, width = shape
    del batch
    return (channels * height * width, 1, width * channels, channels)
