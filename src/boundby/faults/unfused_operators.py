"""Chains of elementwise operators, normalizations and copies run one kernel at a time.

What it looks for
    Operators with little arithmetic that pass their results to each other through device memory: a
    cast, a scale, a softmax, a dropout, a sum. The addresses of their tensors show which operator
    reads which result. Operators between two matrix products could be one kernel.

Why it costs time
    Each of k chained operators reads and writes the whole tensor. A fused kernel reads the input of
    the chain and writes its output: one read and one write instead of k. Each operator also costs
    the host a launch.

What to change
    Call `model = torch.compile(model)`.

When it does not help
    When matrix products take most of the time. When the host limits the step: a compiled kernel
    costs the host 1.5 times as much as an eager operator, in training 2.5 times (23 to 26 us and 9
    to 10 us on an H200's host), and products and convolutions are launched as before, so only long
    chains gain. When shapes change so often that the code is compiled again and again. In
    `nn.LSTM`, `nn.GRU` and `nn.RNN`, which the compiler does not change. Outside the model, for
    example in a loss: compile a function that contains both. On a CPU the gain is small where
    operators are slower than their memory traffic explains, and generated code may be slower than
    the library: a small convolutional network took 1.19 times as long compiled.

Measured on
    BERT (12 layers) on an H200: 35.5 to 21.4 ms per step; predicted 22.6 ms. Host time of the
    compiled step relative to the eager one: 0.69 for BERT, 0.78 for ViT, 1.03 for ResNet-50 and
    0.98 to 1.04 for a UNet. A step that the host limits gains that much, which may be nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from boundby.faults import layout_copies, wasted_tiles
from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import compiled
from boundby.model import Phase
from boundby.model.assumptions.device import (
    INTEGER_SHARE,
    RANDOM_INSTRUCTIONS,
    SLOW_GENERATED_SHARE,
    SLOWEST_PASS_SHARE,
)
from boundby.model.assumptions.savings import (
    COMPILED_HOST_SPREAD,
    FUSED_CHAIN_AT_BEST,
    UNSEEN_PASS_SHARE,
)
from boundby.step.compiled_host import compiled_host_ns, launch_costs
from boundby.step.function_cost import function_flops
from boundby.step.fusion_groups import Chain, chains_of, is_random
from boundby.step.graph_break_regions import graph_break_rows
from boundby.step.model import Edit, HostTime, StepView

_COMPILED = ("triton_", "CompiledFunction", "Torch-Compiled")
# Kernels of at least this size show how fast passes over memory run in this step.
_LARGE_PASS_BYTES = 4e6
# Normalized row by row.
_BY_ROWS = ("layer_norm", "rms_norm", "softmax")


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    if flow is None or any(record.name.startswith(_COMPILED) for record in step.op_records):
        return None
    chains = [chain for chain in chains_of(step, flow) if len(chain.op_records) > 1]
    if not chains:
        return None
    middle, slow = _pass_efficiency(step)
    turned = layout_copies.compiled_times(step)
    # The compiler pads products and changes the layout of convolutions, also of small ones.
    products = turned | wasted_tiles.padded_times(step)
    left = graph_break_rows(step).outside
    turned, products = (
        {index: ns for index, ns in times.items() if index not in left}
        for times in (turned, products)
    )
    if step.device == "cpu":
        # A CPU's speed inside a step differs from that of a benchmark.
        turned = {index: max(ns, step.op_records[index].ns) for index, ns in turned.items()}
    costs = launch_costs(step)
    costliest = sorted(
        chains,
        key=lambda chain: -sum(step.op_records[index].ns for index in chain.op_records),
    )
    return Detection(
        low=_fused(step, chains, slow, turned, costs[0], _all_remains),
        expected=_fused(step, chains, middle, products, costs[1], _arithmetic_remains),
        high=_fused(step, chains, 1.0, products, costs[2], _remains_at_best),
        where=step.lines(
            step.op_records[index] for chain in costliest for index in chain.op_records
        )[:3],
        change="model = torch.compile(model)",
        assumes="the model compiles without graph breaks, and its shapes stay the same",
    )


def _pass_efficiency(step: StepView) -> tuple[float, float]:
    """The speed of this step's pointwise kernels relative to a plain copy, at the middle and the
    slow end: of half and of a quarter of their bytes."""
    seen = [
        (copy / record.ns, record.cost.bytes)
        for record in step.op_records
        if record.op_class == "elementwise"
        and record.phase != Phase.OPTIMIZER
        and record.cost is not None
        and record.cost.bytes >= _LARGE_PASS_BYTES
        and record.ns > 0
        and (copy := step.machine.copy_ns(record.cost.bytes))
    ]
    if not seen:
        return UNSEEN_PASS_SHARE.value, UNSEEN_PASS_SHARE.low
    seen.sort()
    upto = np.cumsum([size for _, size in seen])
    slow, middle = (seen[int(np.searchsorted(upto, share * upto[-1]))][0] for share in (0.25, 0.5))
    return min(1.0, max(SLOWEST_PASS_SHARE.value, middle)), min(
        SLOW_GENERATED_SHARE.value, max(SLOWEST_PASS_SHARE.value, slow)
    )


# On a CPU the arithmetic remains without its memory traffic: the minimum time of a fused chain.
Remaining = Callable[[StepView, Chain], float]


def _all_remains(step: StepView, chain: Chain) -> float:
    """Compiled steps of small models took as long as eager ones, and longer."""
    return sum(step.op_records[index].ns for index in chain.op_records)


def _arithmetic_remains(step: StepView, chain: Chain) -> float:
    """The time of each operation beyond its memory traffic; generated code is no faster at that
    than a library."""
    op_records = [step.op_records[index] for index in chain.op_records]
    beyond = [
        record.ns - (step.machine.memory_ns(record.cost) or 0.0 if record.cost else 0.0)
        for record in op_records
    ]
    return max(*(record.ns for record in op_records), sum(max(0.0, ns) for ns in beyond))


def _remains_at_best(step: StepView, chain: Chain) -> float:
    return FUSED_CHAIN_AT_BEST.value * max(step.op_records[index].ns for index in chain.op_records)


def _fused(
    step: StepView,
    chains: Sequence[Chain],
    efficiency: float,
    products: dict[int, float],
    launch_ns: float,
    stays: Remaining,
) -> Edit:
    op_ns = dict(products)
    gone = []
    for chain in chains:
        before = sum(step.op_records[index].ns for index in chain.op_records)
        after = min(before, _pass_ns(step, chain, efficiency, stays))
        if step.device == "cpu":
            after = min(before, max(after, stays(step, chain)))
        op_ns[chain.op_records[0]] = after
        for index in chain.op_records[1:]:
            op_ns[index] = 0.0
            gone.append(index)
    unfusible = frozenset(products)
    edit = Edit(op_ns=op_ns, unfusible=unfusible)
    if step.device == "cpu":
        return edit if stays is _all_remains else edit + Edit.scale_launches(gone, 0.0)
    doubt = COMPILED_HOST_SPREAD.value * ((stays is _all_remains) - (stays is _remains_at_best))
    host = (1 + doubt) * compiled_host_ns(step, gone, launch_ns)
    edit += Edit.save_host(HostTime(before_ns=step.launches.host_ns - host))
    for chain in chains:
        edit += Edit.add_host(chain.op_records[:1], chain.reductions * launch_ns)
    return edit


def _pass_ns(step: StepView, chain: Chain, efficiency: float, stays: Remaining) -> float:
    """The time of one kernel for a chain's traffic, functions and random numbers, and of its
    reductions.

    At best, random numbers are computed while other threads wait for memory; so are functions,
    unless each row must be complete before they can start. At worst, what is summed over the rows
    is written for another kernel.
    """
    machine = step.machine
    apart = _summed_apart_bytes(step, chain) if stays is _all_remains else 0.0
    copy, chance = machine.copy_ns(chain.bytes + apart), _chance_ns(step, chain)
    if copy is None:
        return math.inf
    traffic, functions = copy / efficiency, _functions_ns(step, chain)
    reduced = chain.reductions * (machine.overheads.shortest_kernel_ns or 0.0)
    if stays is _remains_at_best:
        return reduced + max(traffic, functions, chance)
    names = [step.op_records[index].name for index in chain.op_records]
    by_rows = any(part in name for name in names for part in _BY_ROWS)
    return reduced + chance + (traffic + functions if by_rows else max(traffic, functions))


def _functions_ns(step: StepView, chain: Chain) -> float:
    rate = step.machine.rate("vector.float32")
    op_records = (step.op_records[index] for index in chain.op_records)
    flops = sum(function_flops(record, step.call(record)) for record in op_records)
    return flops / rate * 1e9 if rate and step.device != "cpu" else 0.0


def _summed_apart_bytes(step: StepView, chain: Chain) -> float:
    """The bytes from which a normalization's weights get their gradients, in float32, written and
    read."""
    calls = [
        step.call(step.op_records[index])
        for index in chain.op_records
        if "layer_norm_backward" in step.op_records[index].name
    ]
    return sum(2 * 4.0 * call.tensors[0].elements for call in calls if call and call.tensors)


def _chance_ns(step: StepView, chain: Chain) -> float:
    """The arithmetic of a chain's random numbers: generated code makes each one separately."""
    rate = step.machine.rate("vector.float32")
    numbers = 0
    for index in chain.op_records:
        call = step.call(step.op_records[index])
        if call and call.tensors and is_random(step.op_records[index]):
            numbers += call.tensors[0].elements
    return numbers * RANDOM_INSTRUCTIONS.value / (INTEGER_SHARE.value * rate) * 1e9 if rate else 0.0


FAULT = Fault(
    id="unfused-operators",
    title="Elementwise operators not fused",
    kind="tuning",
    group="bandwidth",
    stage=Stage.FUSION,
    document=__doc__,
    detect=detect,
    fixes=(
        compiled.COMPILE,
        compiled.REDUCE_OVERHEAD,
    ),
)
