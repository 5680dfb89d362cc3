"""Images are stored channel by channel (NCHW), but the kernels need NHWC.

What it looks for
    Convolutions, normalizations and poolings on 4-D tensors in NCHW layout, and the transposes that
    the library adds before and after each convolution.

Why it costs time
    The matrix units multiply over channels and need all channels of a pixel next to each other
    (NHWC). For another layout the library transposes the input and the output or uses a slower
    kernel: on an H200 the convolutions of a ResNet-50 in bfloat16 took 9.0 ms in NCHW and 4.9 ms in
    NHWC.

What to change
    Call `model = model.to(memory_format=torch.channels_last)`, and the same for the images.

When it does not help
    On CUDA in float32 without tf32. With few channels (under about 8). When the host limits the
    step. When an operator inside the network needs NCHW: group normalization does on CUDA, so every
    image is transposed twice (a UNet with group normalization on an H200 went from 11.1 to 14.0
    ms). `Conv1d` has no such layout.

Measured on
    ResNet-50 on an H200: 29.4 to 17.2 ms per step, predicted 20.5 ms. With CUDA graphs 16.7 ms,
    predicted 16.3 ms.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.faults.fault import Detection, Fault
from boundby.fixes import layout
from boundby.model import OpCall, Phase, Tensor
from boundby.model.assumptions.savings import LAYOUT_BENCHMARK_RATIO, LAYOUT_GAIN
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import (
    benchmark,
    is_loose,
    ratio_of,
    timed_ratio,
    with_channels_last,
    with_tensors,
)

_LAID_OUT = ("convolution", "batch_norm", "max_pool2d", "avg_pool2d", "upsample", "group_norm")
_FEW_CHANNELS = 64  # convolutions with at most as many channels are called small; assumed


def detect(step: StepView) -> Detection | None:
    image_ops = [
        index for index, record in enumerate(step.op_records) if _is_channels_first(step, record)
    ]
    convolutions = {index for index in image_ops if _is_convolution(step.op_records[index])}
    # Convolutions of compiled code are already library calls in their best layout.
    if not convolutions or convolutions & step.unfusible:
        return None
    changes = [
        _together(step, image_ops, regained, factor**step.benchmark_doubt)
        for regained, factor in zip(
            LAYOUT_GAIN.low_to_high, LAYOUT_BENCHMARK_RATIO.high_to_low, strict=True
        )
    ]
    return Detection(
        low=changes[0],
        expected=changes[1],
        high=changes[2],
        where=step.lines(step.op_records[index] for index in image_ops)[:3],
        change="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        assumes="every operator on images keeps the layout",
    )


def compiled_times(step: StepView) -> dict[int, float]:
    """The times of convolutions in the layout that Inductor chooses, for those whose layout
    changes.

    On a CPU it changes all. Otherwise all or none: none if one is grouped or has far fewer output
    than input channels, or if all have few channels.
    """
    if step.device != "cpu" and not _converts_all(step):
        return {}
    times = {}
    for index, record in enumerate(step.op_records):
        if (
            index in step.unfusible
            or not _is_convolution(record)
            or not _is_channels_first(step, record)
        ):
            continue
        ratio = timed_ratio(step, record, with_channels_last)
        if ratio is not None:
            times[index] = record.ns * ratio
    return times


def _converts_all(step: StepView) -> bool:
    small = True
    for record in step.op_records:
        call = step.call(record)
        if call is None or not _is_convolution(record) or record.phase == Phase.BACKWARD:
            continue
        shapes = [tensor.shape for tensor in call.tensors[:2]]
        if len(shapes) < 2 or any(len(shape) != 4 for shape in shapes):
            continue
        (_, channels, *_), (out, each, height, _) = shapes
        grouped = channels != each
        if (grouped and each > 1) or (2 * out <= each and height > 1):
            return False
        small = small and max(out, each) <= _FEW_CHANNELS
    return not small


def _is_convolution(record: OpRecord) -> bool:
    return "convolution" in record.name


def _is_channels_first(step: StepView, record: OpRecord) -> bool:
    """Whether it works on several images whose channels are not the fastest dimension."""
    call = step.call(record)
    if call is None or record.phase == Phase.OPTIMIZER or record.ns <= 0:
        return False
    if not any(part in record.name for part in _LAID_OUT) or _is_of_sequences(step, record):
        return False
    return any(
        len(tensor.shape) == 4
        and tensor.strides is not None
        and tensor.shape[1] > 1
        and tensor.shape[2] * tensor.shape[3] > 1
        and tensor.strides[1] != 1
        for tensor in call.tensors
    )


def _is_of_sequences(step: StepView, record: OpRecord) -> bool:
    """Whether it has three dimensions, as for `Conv1d`, which libraries run as images of one row:
    their layout cannot be changed from outside."""
    return record.row >= 0 and bool(step.memoised(_rows_of_sequences)[record.row])


def _rows_of_sequences(step: StepView) -> npt.NDArray[np.bool_]:
    # The last one is for rows that are no call.
    flat = np.array(
        [
            any(part in call.name for part in _LAID_OUT)
            and bool(call.tensors)
            and len(call.tensors[0].shape) == 3
            for call in step.timeline.calls
        ]
        + [False]
    )
    return step.inside_both_ways(flat[step.timeline.host.call])


def _together(step: StepView, image_ops: list[int], regained: float, factor: float) -> Edit:
    # CPU libraries convert images themselves: without a benchmark the gain is unknown.
    untimed = step.device != "cpu"
    kept = not any(_needs_channels_first(step.op_records[index]) for index in image_ops)
    op_ns = {}
    for index in image_ops:
        record = step.op_records[index]
        if _needs_channels_first(record):
            op_ns[index] = record.ns + _conversion_ns(step, record)
            continue
        ratio = timed_ratio(step, record, with_channels_last) if kept else _ratio(step, record)
        if ratio is not None:
            op_ns[index] = record.ns * ratio * factor
        elif kept and untimed and _is_convolution(record) and record.floor_ns is not None:
            op_ns[index] = record.ns - regained * max(0.0, record.ns - record.floor_ns)
    turned = frozenset(index for index in image_ops if _is_convolution(step.op_records[index]))
    return Edit(op_ns=op_ns, unfusible=turned)


def _needs_channels_first(record: OpRecord) -> bool:
    """Operations that need channels-first input whatever comes in, and pass it on in that
    layout."""
    return "group_norm" in record.name


def _conversion_ns(step: StepView, record: OpRecord) -> float:
    """The time to bring the first argument to channels-first layout."""
    call = step.call(record)
    assert call is not None
    apart = call.tensors[0]
    dense = Tensor(shape=apart.shape, dtype=apart.dtype, strides=apart.strides)
    turn = OpCall(name="aten::copy_", args=(dense, with_channels_last(dense)))
    return (
        step.timings.ns(benchmark(turn, loose=False))
        or step.machine.copy_ns(2 * apart.bytes)
        or 0.0
    )


def _ratio(step: StepView, record: OpRecord) -> float | None:
    """The time ratio for a convolution in a network that converts its images back to channels
    first: only its weights change their layout."""
    call = step.call(record)
    if call is None or not _is_convolution(record):
        return None
    weights = max(at for at, tensor in enumerate(call.tensors) if len(tensor.shape) == 4)
    turned = [
        with_channels_last(tensor) if at == weights else tensor
        for at, tensor in enumerate(call.tensors)
    ]
    before, after = (
        benchmark(one, loose=is_loose(record)) for one in (call, with_tensors(call, turned))
    )
    return ratio_of(step, before, after)


FAULT = Fault(
    id="layout-copies",
    title="Images converted between memory layouts",
    kind="tuning",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    fixes=(layout.CHANNELS_LAST,),
)
