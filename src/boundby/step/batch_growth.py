"""How a step's kernels grow with the batch: activations do, weights and gradients do not, and what
compares samples with each other grows with its square.

The costliest calls are timed by themselves, as they are and with a larger batch; for the others
the machine's curves say how much nearer to the roof larger kernels run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import Phase
from boundby.model.assumptions.device import CACHE_REACH
from boundby.step.batch_invariant import batch_invariant_values, goes_to_optimizer
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import benchmark, grown, is_batched_product, is_loose, is_recurrent
from boundby.step.quadratic_in_batch import quadratic_values
from boundby.step.sample_loops import find_sample_loops, holds_samples

# The costliest calls are timed with larger batches: these are most of any step seen. On a CPU
# each takes its time several times over.
_MOST_TIMED, _MOST_TIMED_ON_CPU = 48, 32
# More than twice the batch is tried where it touches no more than this: the script has its memory.
_MOST_TOUCHED = 1 << 30
# A CPU's pace is another one when something is timed alone, and each time the batch is doubled
# something else may outgrow a cache: this many times the doubt for each.
_DOUBT_ON_CPU = 4
# With twice the batch a call that takes less than this of its time is done by another kernel.
_ANOTHER_KERNEL = 0.9


class Growth(NamedTuple):
    """How kernels, and the script between them, grow with the batch."""

    between: float  # the machine's curves (0) and proportion to the batch (1)
    timed: float  # of those that were timed, beside what they took alone
    script: float | None  # the share of the script's own Python that grows; None: what is likely


class Alone(NamedTuple):
    """What a call takes by itself in ns: with its memory in the caches, or with other memory."""

    hot: float
    cold: float


SLOW, LIKELY, FAST = Growth(1.0, 1.03, 1.0), Growth(0.25, 1.0, None), Growth(-0.5, 0.97, 0.0)
AS_THE_CURVES = Growth(0.0, 1.0, 0.0)


def times_with(step: StepView, factor: int, growth: Growth) -> dict[int, float]:
    """Every piece of work with a larger batch: activations grow, weights and gradients do not."""
    ratios = _ratios_with(step, factor)
    timed = timed_with(step, factor)
    shortest = step.machine.overheads.shortest_kernel_ns or 0.0
    doubt = 1.0 if step.device != "cpu" else _DOUBT_ON_CPU * math.log2(factor)
    times = {}
    looped = {index for loop in find_sample_loops(step) for index in loop.op_records}
    for index, record in enumerate(step.op_records):
        one_sample = index in looped and not holds_samples(step, index)
        if one_sample or step.is_for_data(record):
            times[index] = factor * record.ns  # it is called for each
            continue
        calls = factor if index in looped else 1
        if index in timed:
            times[index] = calls * timed[index] * growth.timed**doubt
            continue
        curve, most = ratios[index]
        ratio = max(1.0, curve + (most - curve) * growth.between)
        start = min(shortest * record.kernels, record.ns)
        times[index] = calls * (start + (record.ns - start) * ratio)
    return times


def grown_ns(ns: float, twice_ns: float, factor: int, degree: int = 1) -> float:
    """What a kernel takes is some part for being there, and some for each sample, or for each two
    of them where it grows with the second degree.

    One that takes more than twice as long with twice the batch has outgrown a cache, and for one
    that takes less than with one there is another kernel: from there on it grows in proportion.
    """
    twice, times = 2.0**degree, float(factor) ** degree
    if _ANOTHER_KERNEL * ns < twice_ns < twice * ns:
        return ns + (times - 1) / (twice - 1) * max(0.0, twice_ns - ns)
    return times / twice * twice_ns


def timed_with(step: StepView, factor: int) -> dict[int, float]:
    """What the costliest calls take with a larger batch, in ns, where they could be timed.

    A CPU is asked for each factor: of what outgrows its caches, or is memory that its system gives
    anew each time, twice the batch may know nothing yet.
    """
    square = step.memoised(_square_bytes)
    found = {
        index: grown_ns(step.op_records[index].ns, twice, factor, degree=_degree(square[index]))
        for index, twice in timed_grown(step, 2).items()
    }
    return found if step.device != "cpu" or factor == 2 else found | timed_grown(step, factor)


def timed_grown(step: StepView, factor: int) -> dict[int, float]:
    """What calls take that were timed with so many times the batch, a power of two."""
    found = {}
    square = step.memoised(_square_bytes)
    for pair, indices in costliest(step, factor).items():
        both = timed_alone(step, *pair, step.op_records[indices[0]])
        if both is None:
            continue
        for index in indices:
            ns, most = step.op_records[index].ns, float(factor) ** _degree(square[index])
            found[index] = in_step_ns(ns, *both, most=most)
            if step.device == "cpu":
                found[index] = _on_cpu(ns, found[index], *both)
    return found | _backward_of_recurrent(step, found)


def in_step_ns(ns: float, alone: Alone, grown: Alone, *, most: float) -> float:
    """What a call takes in the step with a larger batch, from what it takes by itself.

    What the step's own call takes says how much of its memory it finds in the caches there. It
    grows `most` times at most, unless it takes more than that by itself.
    """
    hot, cold = alone.hot, max(alone.hot, alone.cold)
    missed = min(1.0, max(0.0, (ns - hot) / (cold - hot))) if cold > hot else 0.0
    before = hot + missed * (cold - hot)
    after = grown.hot + missed * max(0.0, grown.cold - grown.hot)
    return min(ns * after / before, max(most * ns, grown.hot, grown.cold))


def _on_cpu(ns: float, scaled: float, alone: Alone, larger: Alone) -> float:
    """What is timed alone has what every call costs in it, which is not counted as the work's; and
    the step may have to ask its system for memory that is at hand there, however large the batch.
    """
    more = ns + larger.hot - alone.hot
    return (scaled + more) / 2 if ns > alone.hot else max(scaled, more)


def _backward_of_recurrent(step: StepView, found: dict[int, float]) -> dict[int, float]:
    """They grow as the layers do that they go back through: alone they cannot be run, since they
    read what those left for them."""
    op_records = step.op_records
    forward = [index for index in found if is_recurrent(op_records[index].name)]
    before = sum(op_records[index].ns for index in forward)
    if not before:
        return {}
    ratio = sum(found[index] for index in forward) / before
    return {
        index: ratio * record.ns
        for index, record in enumerate(op_records)
        if is_recurrent(record.name.removesuffix("_backward")) and index not in found
    }


def costliest(step: StepView, factor: int) -> dict[tuple[OpBenchmark, OpBenchmark], list[int]]:
    """Calls as they are and with a larger batch, the costliest first, and where they are made."""
    flow = step.flow
    if flow is None:
        return {}
    fixed = batch_invariant_values(step, flow)
    squares = step.memoised(quadratic_values)
    pairs: dict[tuple[OpBenchmark, OpBenchmark], list[int]] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or record.phase == Phase.OPTIMIZER or record.ns <= 0:
            continue
        if factor > 2 and record.cost is not None and factor * record.cost.bytes > _MOST_TOUCHED:
            continue
        grows = [value not in fixed for value in flow.given[index] if value is not None]
        if not any(grows):
            continue
        given = [value is None or value not in fixed for value in flow.given[index]]
        loose = is_loose(record)
        both_ways = {
            tensor.shape
            for tensor, value in zip(call.tensors, flow.given[index], strict=True)
            if value in squares and len(tensor.shape) == 2
        }
        larger = grown(call, factor, given, both_ways)
        pair = benchmark(call, loose=loose), benchmark(larger, loose=loose)
        if pair[0] != pair[1]:
            pairs.setdefault(pair, []).append(index)
    most = _MOST_TIMED if step.device != "cpu" else _MOST_TIMED_ON_CPU
    ranked = sorted(pairs, key=lambda pair: -sum(step.op_records[i].ns for i in pairs[pair]))
    return {pair: pairs[pair] for pair in ranked[:most]}


def timed_alone(
    step: StepView, single: OpBenchmark, larger: OpBenchmark, record: OpRecord
) -> tuple[Alone, Alone] | None:
    """A call by itself, as the work makes it and with a larger batch; None if it was not timed.

    What reaches far past a device's caches finds nothing there anyway, and on a CPU they are not
    told apart.
    """
    hot = [step.timings.ns(one) for one in (single, larger)]
    cold = list(hot)
    if _may_be_cached(step, record):
        flushed = (msgspec.structs.replace(one, cold=True) for one in (single, larger))
        cold = [step.timings.ns(one) for one in flushed]
    if not (hot[0] and hot[1]):
        return None
    if not (cold[0] and cold[1]):
        cold = hot
    return Alone(hot[0], cold[0] or hot[0]), Alone(hot[1], cold[1] or hot[1])


def _may_be_cached(step: StepView, record: OpRecord) -> bool:
    """Whether a device's cache may hold a part of what the work touches that counts."""
    held = [level.capacity for level in step.machine.levels if level.capacity]
    touched = record.cost.bytes if record.cost else 0.0
    return step.device != "cpu" and bool(held) and touched <= CACHE_REACH.value * max(held)


def _ratios_with(step: StepView, factor: int) -> list[tuple[float, float]]:
    """For each piece of work how much longer it takes with so many times the batch."""
    known = step.memoised(_known_ratios)
    if factor not in known:
        constant, square = _constant_bytes(step), step.memoised(_square_bytes)
        known[factor] = [
            _ratios(step, record, factor, constant[index], square[index])
            for index, record in enumerate(step.op_records)
        ]
    return known[factor]


def _known_ratios(_: StepView) -> dict[int, list[tuple[float, float]]]:
    return {}


def _ratios(
    step: StepView, record: OpRecord, factor: int, constant: float, square: float
) -> tuple[float, float]:
    """How much longer a piece of work takes: by the machine's curves, and at most.

    Larger kernels run nearer to the roof: the curves say by how much.
    """
    if record.phase == Phase.OPTIMIZER or record.ns <= 0:
        return 1.0, 1.0
    cost, machine = record.cost, step.machine
    times = float(factor**2 if square else factor)
    if cost is None or not record.floor_ns:
        return times, times
    if constant >= cost.bytes:
        return 1.0, 1.0
    if step.device == "cpu" and is_batched_product(record.name):
        return times, times  # more products, and none of them larger
    square = min(square, cost.bytes - constant)
    grown = cost.bytes * factor - constant * (factor - 1) + square * (factor**2 - factor)
    if record.bound == "compute":
        unit = max(cost.flops, key=lambda name: cost.flops[name])
        flops = cost.flops[unit]
        before, after = (machine.product_ns(unit, amount) for amount in (flops, flops * times))
    else:
        before, after = machine.copy_ns(cost.bytes), machine.copy_ns(grown)
    ratio = after / before if before and after else times
    most = times if record.bound == "compute" else grown / cost.bytes
    return min(most, max(1.0, ratio)), most


def _constant_bytes(step: StepView) -> list[float]:
    """For each piece of work, the bytes that do not grow: weights it reads, gradients it makes."""
    flow = step.flow
    if flow is None:
        return [_weights_by_place(step, record) for record in step.op_records]
    fixed = batch_invariant_values(step, flow)
    constant = [0.0] * len(step.op_records)
    for index in flow.order:
        read = sum(size for value, size in flow.reads[index].items() if value in fixed)
        made = [
            flow.values[value].bytes
            for value in flow.makes[index]
            if value in fixed or goes_to_optimizer(step, flow.values[value])
        ]
        constant[index] = read + sum(made)
    return constant


def _square_bytes(step: StepView) -> list[float]:
    """For each piece of work, the bytes it reads and makes that grow with the square."""
    flow = step.flow
    square = [0.0] * len(step.op_records)
    squares = step.memoised(quadratic_values)
    if flow is None or not squares:
        return square
    for index in flow.order:
        read = sum(size for value, size in flow.reads[index].items() if value in squares)
        made = sum(flow.values[value].bytes for value in flow.makes[index] if value in squares)
        square[index] = read + made
    return square


def _degree(square: float) -> int:
    """Of growth with the batch: what has to do with a square grows as it does."""
    return 2 if square else 1


def _weights_by_place(step: StepView, record: OpRecord) -> float:
    """Where memory was not recorded: the smaller operand of a product."""
    call = step.call(record)
    if call is None or record.op_class != "contraction" or len(call.tensors) < 2:
        return 0.0
    return float(min(tensor.bytes for tensor in call.tensors[:2]))
