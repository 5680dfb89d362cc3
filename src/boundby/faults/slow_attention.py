"""Fused attention uses a kernel that is not the fastest one on this device.

What it looks for
    Calls of `scaled_dot_product_attention` that use one of torch's fused kernels (flash,
    memory-efficient, cuDNN) while another one, benchmarked at the same shapes on this device, is
    faster. In a trace file: memory-efficient attention in 16 bits, far below the share of the
    matrix roof that flash attention reaches.

Why it costs time
    The kernels were written for different chips. The memory-efficient kernel does not use the
    features of newer matrix units; the cuDNN kernel for Hopper and later overlaps its products with
    its softmax. torch chooses by a fixed order, not by time. A mask passed as a tensor excludes
    flash attention.

What to change
    Wrap the step in `with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION):`, or set the
    switches in `torch.backends.cuda` (`enable_flash_sdp`, `enable_cudnn_sdp`, ...) once at the
    start. If a mask is only causal, pass `is_causal=True` instead.

When it does not help
    When the host limits the step. When the kernel does not support these shapes, this mask or this
    dtype: torch then falls back to plain products, which are much slower. cuDNN compiles for each
    new shape, so it is slower when sequence lengths keep changing.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from boundby.faults.fault import Detection, Fault
from boundby.fixes import attention
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import OpCall, Tensor
from boundby.model.assumptions.detection import FASTER_KERNEL
from boundby.model.assumptions.device import FLASH_SHARE, SLOW_ATTENTION_SHARE
from boundby.model.assumptions.savings import RIVAL_KERNEL_GAIN
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import is_loose

# The places of dropout, `is_causal` and the bias in each forward's arguments.
_FORWARD: dict[str, tuple[str, int, int, int | None]] = {
    "aten::_scaled_dot_product_flash_attention": ("flash", 3, 4, None),
    "aten::_scaled_dot_product_efficient_attention": ("efficient", 5, 6, 3),
    "aten::_scaled_dot_product_cudnn_attention": ("cudnn", 5, 6, 3),
}
_FIXES = {
    "flash": attention.FLASH_ATTENTION,
    "efficient": attention.EFFICIENT_ATTENTION,
    "cudnn": attention.CUDNN_ATTENTION,
}
_HALF = ("bfloat16", "float16")


@dataclass(slots=True)
class _Calls:
    """Calls of one kernel on one set of shapes, forward and backward."""

    backend: str
    call: OpCall
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)

    @property
    def op_records(self) -> list[int]:
        return [*self.forward, *self.backward]


def detect(step: StepView) -> Detection | None:
    faster: dict[int, tuple[float, float, float]] = {}
    rivals: dict[str, float] = defaultdict(float)
    for calls in _groups(step):
        found = _timed(step, calls) or _from_roof(step, calls)
        if found is None:
            continue
        rival, ratio, certain = found
        for index in calls.op_records:
            rivals[rival] += step.op_records[index].ns
            faster[index] = _left(ratio, certain)
    if not faster:
        return None

    def with_rivals(scenario: int) -> dict[int, float]:
        return {index: step.op_records[index].ns * left[scenario] for index, left in faster.items()}

    best = max(rivals, key=lambda name: rivals[name])
    return Detection(
        low=Edit.set_time(with_rivals(0)),
        expected=Edit.set_time(with_rivals(1)),
        high=Edit.set_time(with_rivals(2)),
        where=step.lines(step.op_records[index] for index in faster)[:3],
        change=_FIXES[best].change,
        assumes="the faster kernel takes as long in the step as in the benchmark",
        fix=_FIXES[best],
    )


def _left(ratio: float, certain: bool) -> tuple[float, float, float]:
    worst, expected, best = (
        max(0.05, 1 - share * (1 - ratio)) for share in RIVAL_KERNEL_GAIN.low_to_high
    )
    return (worst if certain else 1.0), expected, best


def _groups(step: StepView) -> list[_Calls]:
    groups: dict[tuple[str, tuple[int, ...], bool], _Calls] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or record.name not in _FORWARD or record.ns <= 0 or not call.tensors:
            continue
        backend = _FORWARD[record.name][0]
        key = (backend, call.tensors[0].shape, _bias(call) is not None)
        groups.setdefault(key, _Calls(backend, call)).forward.append(index)
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        forward = record.name.removesuffix("_backward")
        if call is None or forward == record.name or forward not in _FORWARD:
            continue
        # The gradient comes first, then query, key and value.
        shape = call.tensors[1].shape if len(call.tensors) > 1 else ()
        for (backend, known, _), calls in groups.items():
            if backend == _FORWARD[forward][0] and known == shape:
                calls.backward.append(index)
                break
    return list(groups.values())


def _timed(step: StepView, calls: _Calls) -> tuple[str, float, bool] | None:
    """The time of the fastest other kernel at these shapes, relative to this one's; None if
    unknown."""
    loose = any(is_loose(step.op_records[index]) for index in calls.op_records)
    own = step.timings.ns(_exercise(calls, calls.backend, loose=loose))
    times = {name: step.timings.ns(_exercise(calls, name, loose=loose)) for name in _FIXES}
    known = {name: ns for name, ns in times.items() if ns and name != calls.backend}
    if not own or not known:
        return None
    rival = min(known, key=lambda name: known[name])
    ratio = known[rival] / own
    return (rival, ratio, True) if ratio < FASTER_KERNEL.value else None


def _exercise(calls: _Calls, backend: str, *, loose: bool) -> OpBenchmark:
    _, dropout, causal, _ = _FORWARD[calls.call.name]
    args = calls.call.args
    plain = [_plain(tensor) for tensor in calls.call.tensors[:3]]
    rate = args[dropout] if len(args) > dropout else None
    bias = _bias(calls.call)
    return OpBenchmark(
        name="attention",
        args=(
            *plain,
            float(rate) if isinstance(rate, (int, float)) else 0.0,
            bool(args[causal]) if len(args) > causal else False,
            bool(calls.backward),
            backend,
            _plain(bias) if bias is not None else None,
        ),
        loose=loose and plain[0].dtype == "float32",
    )


def _plain(tensor: Tensor) -> Tensor:
    return Tensor(shape=tensor.shape, dtype=tensor.dtype, strides=tensor.strides)


def _bias(call: OpCall) -> Tensor | None:
    place = _FORWARD[call.name][3]
    value = call.args[place] if place is not None and len(call.args) > place else None
    return value if isinstance(value, Tensor) else None


def _from_roof(step: StepView, calls: _Calls) -> tuple[str, float, bool] | None:
    """The faster backend and the share of the time that remains, without a benchmark: for
    memory-efficient attention far below the share of the roof that flash attention reaches."""
    query = calls.call.tensors[0]
    rate = step.machine.rate(f"matmul.{query.dtype}")
    op_records = [step.op_records[index] for index in calls.op_records]
    if calls.backend != "efficient" or query.dtype not in _HALF or not rate:
        return None
    if _bias(calls.call) is not None or step.timings.results:
        return None
    flops, ns = sum(map(_flops, op_records)), sum(record.ns for record in op_records)
    reached = flops / rate * 1e9 / ns if ns else 1.0
    return (
        ("flash", reached / FLASH_SHARE.value, False)
        if 0 < reached < SLOW_ATTENTION_SHARE.value
        else None
    )


def _flops(record: OpRecord) -> float:
    return record.cost.total_flops if record.cost is not None else 0.0


FAULT = Fault(
    id="slow-attention",
    title="A slow attention kernel is used",
    kind="tuning",
    group="compute",
    devices=("cuda",),
    document=__doc__,
    detect=detect,
    fixes=(
        attention.CUDNN_ATTENTION,
        attention.FLASH_ATTENTION,
        attention.EFFICIENT_ATTENTION,
    ),
)
