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
from boundby.faults.fault import Detection, Fault
from boundby.fixes import compiled
from boundby.model import Phase
from boundby.step.compiled_host import compiled_host_ns, launch_costs
from boundby.step.function_cost import function_flops
from boundby.step.fusion_groups import Chain, chains_of, is_random
from boundby.step.graph_break_regions import graph_break_rows
from boundby.step.model import Edit, HostTime, StepModel

_COMPILED = ("triton_", "CompiledFunction", "Torch-Compiled")
# What else a compiled step may take its host, beside what is reckoned.
_HOST_DOUBT = 0.1
# Kernels from this size on tell how fast single passes over memory run in this step.
_TELLING_BYTES = 4e6
_SLOWEST_PASS = 0.4
# However fast the eager ones are: of a plain copy, for generated kernels that turn out slow.
_SLOW_PASS = 0.7
# Normalized row by row.
_BY_ROWS = ("layer_norm", "rms_norm", "softmax")
# A random number of generated code, as integer instructions: ten rounds of two wide products, each
# as long as two, and two exclusive ors, then to a fraction and compared. Half as many lanes do
# these as do float32, where a multiply-add counts twice.
_RANDOM_INSTRUCTIONS = 70
_INTEGER_SHARE = 0.25


def detect(step_model: StepModel) -> Detection | None:
    flow = step_model.flow
    if flow is None or any(work.name.startswith(_COMPILED) for work in step_model.op_records):
        return None
    chains = [chain for chain in chains_of(step_model, flow) if len(chain.op_records) > 1]
    if not chains:
        return None
    middle, slow = _pass_efficiency(step_model)
    turned = layout_copies.compiled_times(step_model)
    # The compiler pads products and turns convolutions, whatever their code says.
    products = turned | wasted_tiles.padded_times(step_model)
    left = graph_break_rows(step_model).outside
    turned, products = (
        {index: ns for index, ns in times.items() if index not in left}
        for times in (turned, products)
    )
    if step_model.device == "cpu":
        # In a step a CPU's pace is another one than alone.
        turned = {index: max(ns, step_model.op_records[index].ns) for index, ns in turned.items()}
    costs = launch_costs(step_model)
    costliest = sorted(
        chains,
        key=lambda chain: -sum(step_model.op_records[index].ns for index in chain.op_records),
    )
    return Detection(
        worst=_fused(step_model, chains, slow, turned, costs[0], _stays_all),
        expected=_fused(step_model, chains, middle, products, costs[1], _stays_of_arithmetic),
        best=_fused(step_model, chains, 1.0, products, costs[2], _stays_at_best),
        where=step_model.lines(
            step_model.op_records[index] for chain in costliest for index in chain.op_records
        )[:3],
        change="model = torch.compile(model)",
        assumes="the model compiles without graph breaks, and its shapes stay the same",
    )


def _pass_efficiency(step_model: StepModel) -> tuple[float, float]:
    """How near this step's own pointwise kernels come to a plain copy, half and a quarter of their
    bytes: the middle, the slow."""
    seen = [
        (copy / work.ns, work.cost.bytes)
        for work in step_model.op_records
        if work.op_class == "elementwise"
        and work.phase != Phase.OPTIMIZER
        and work.cost is not None
        and work.cost.bytes >= _TELLING_BYTES
        and work.ns > 0
        and (copy := step_model.machine.copy_ns(work.cost.bytes))
    ]
    if not seen:
        return 0.75, 0.5
    seen.sort()
    upto = np.cumsum([size for _, size in seen])
    slow, middle = (seen[int(np.searchsorted(upto, share * upto[-1]))][0] for share in (0.25, 0.5))
    return min(1.0, max(_SLOWEST_PASS, middle)), min(_SLOW_PASS, max(_SLOWEST_PASS, slow))


# On a CPU arithmetic stays when its traffic goes: how long a fused chain takes at least.
Stays = Callable[[StepModel, Chain], float]


def _stays_all(step_model: StepModel, chain: Chain) -> float:
    """Compiled steps of small models were seen to take as long as eager ones, and longer."""
    return sum(step_model.op_records[index].ns for index in chain.op_records)


def _stays_of_arithmetic(step_model: StepModel, chain: Chain) -> float:
    """What each takes beyond its traffic; generated code is no better at that than a library."""
    op_records = [step_model.op_records[index] for index in chain.op_records]
    beyond = [
        work.ns - (step_model.machine.memory_ns(work.cost) or 0.0 if work.cost else 0.0)
        for work in op_records
    ]
    return max(*(work.ns for work in op_records), sum(max(0.0, ns) for ns in beyond))


def _stays_at_best(step_model: StepModel, chain: Chain) -> float:
    return 0.5 * max(step_model.op_records[index].ns for index in chain.op_records)


def _fused(
    step_model: StepModel,
    chains: Sequence[Chain],
    efficiency: float,
    products: dict[int, float],
    launch_ns: float,
    stays: Stays,
) -> Edit:
    op_ns = dict(products)
    gone = []
    for chain in chains:
        before = sum(step_model.op_records[index].ns for index in chain.op_records)
        after = min(before, _pass_ns(step_model, chain, efficiency, stays))
        if step_model.device == "cpu":
            after = min(before, max(after, stays(step_model, chain)))
        op_ns[chain.op_records[0]] = after
        for index in chain.op_records[1:]:
            op_ns[index] = 0.0
            gone.append(index)
    unfusible = frozenset(products)
    edit = Edit(op_ns=op_ns, unfusible=unfusible)
    if step_model.device == "cpu":
        return edit if stays is _stays_all else edit + Edit.scale_launches(gone, 0.0)
    doubt = _HOST_DOUBT * ((stays is _stays_all) - (stays is _stays_at_best))
    host = (1 + doubt) * compiled_host_ns(step_model, gone, launch_ns)
    edit += Edit.save_host(HostTime(before_ns=step_model.launches.host_ns - host))
    for chain in chains:
        edit += Edit.add_host(chain.op_records[:1], chain.reductions * launch_ns)
    return edit


def _pass_ns(step_model: StepModel, chain: Chain, efficiency: float, stays: Stays) -> float:
    """One kernel for a chain's traffic, functions and random numbers, and those that reduce beside
    it.

    Numbers are made while others wait for memory, at best; functions are computed so too, unless
    each row has to be there in whole before they can. At worst what is summed up over the rows is
    written for a kernel of its own.
    """
    machine = step_model.machine
    apart = _summed_apart_bytes(step_model, chain) if stays is _stays_all else 0.0
    copy, chance = machine.copy_ns(chain.bytes + apart), _chance_ns(step_model, chain)
    if copy is None:
        return math.inf
    traffic, functions = copy / efficiency, _functions_ns(step_model, chain)
    reduced = chain.reductions * (machine.overheads.shortest_kernel_ns or 0.0)
    if stays is _stays_at_best:
        return reduced + max(traffic, functions, chance)
    names = [step_model.op_records[index].name for index in chain.op_records]
    by_rows = any(part in name for name in names for part in _BY_ROWS)
    return reduced + chance + (traffic + functions if by_rows else max(traffic, functions))


def _functions_ns(step_model: StepModel, chain: Chain) -> float:
    rate = step_model.machine.rate("vector.float32")
    op_records = (step_model.op_records[index] for index in chain.op_records)
    flops = sum(function_flops(work, step_model.call(work)) for work in op_records)
    return flops / rate * 1e9 if rate and step_model.device != "cpu" else 0.0


def _summed_apart_bytes(step_model: StepModel, chain: Chain) -> float:
    """What a normalization's weights get their gradients from, in float32, written and read."""
    calls = [
        step_model.call(step_model.op_records[index])
        for index in chain.op_records
        if "layer_norm_backward" in step_model.op_records[index].name
    ]
    return sum(2 * 4.0 * call.tensors[0].elements for call in calls if call and call.tensors)


def _chance_ns(step_model: StepModel, chain: Chain) -> float:
    """Arithmetic for the random numbers of a chain: generated code makes each on its own."""
    rate = step_model.machine.rate("vector.float32")
    numbers = 0
    for index in chain.op_records:
        call = step_model.call(step_model.op_records[index])
        if call and call.tensors and is_random(step_model.op_records[index]):
            numbers += call.tensors[0].elements
    return numbers * _RANDOM_INSTRUCTIONS / (_INTEGER_SHARE * rate) * 1e9 if rate else 0.0


FAULT = Fault(
    id="unfused-operators",
    title="Elementwise operators not fused",
    kind="tuning",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    fixes=(
        compiled.COMPILE,
        compiled.REDUCE_OVERHEAD,
    ),
)
