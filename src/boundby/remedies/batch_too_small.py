"""The batch is too small to keep the device busy.

What it sees
    A step that would take hardly longer with twice the batch: replayed with twice the activations,
    the same weights and the same host. Time that the script itself takes, outside the model and
    torch, may grow with the samples: not at best, in proportion at worst, and where a function is
    called over and over, most likely so.

Why it costs time
    The host's time, the optimizer's and the weights' traffic are paid once a step, however many
    samples it holds. An overhead-bound step does twice the work in the same time.

The change
    Twice the batch (and a learning rate to go with it), or fewer, larger accumulation steps.

When it does not help
    When the device is the limit: twice the batch takes twice the time. A product with few rows
    also looks flat, because its weights are read once for all of them: there the gain is real too,
    but it is bandwidth that was short, not the host, and the finding says which. More memory is
    needed, and a larger batch may train worse a sample. A step that calls the model many times to
    make its samples (a rollout) is not spoken of: more samples are more calls.

Proven on
    BERT (12 layers) on an H200: twice the batch took 61.4 ms, 60.5 predicted; four times 112, 114
    predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from boundby import units
from boundby.account.work import Work
from boundby.model import CACHE_REACH, Phase
from boundby.model.diagnosis import BatchRow, Range
from boundby.picture import Change, Picture
from boundby.remedies.between import growing_ns, rolls_out
from boundby.remedies.combinations import is_known, saving_of, wall_of
from boundby.remedies.remedy import Imagined, Remedy
from boundby.remedies.variants import doubled, exercise, is_loose
from boundby.remedies.weights import fixed_values, goes_to_optimizer
from boundby.roofs.operators import Exercise

# A step that takes less than this much longer with twice the batch is short of work.
_FLAT = 1.6
_FACTORS = (2, 4)
# The script's own Python is spoken of from this share of the step on.
_TOLD = 0.02
# Of the device's memory, what may be filled.
_USABLE = 0.9
# The costliest calls are timed with twice the batch: these are most of any step seen. On a CPU
# each takes its time twice.
_MOST_TIMED, _MOST_TIMED_ON_CPU = 48, 16
# A CPU's pace is another one when something is timed alone: this many times the doubt.
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


_SLOW, _LIKELY, _FAST = Growth(1.0, 1.03, 1.0), Growth(0.25, 1.0, None), Growth(-0.5, 0.97, 0.0)
_GROWTHS = (_SLOW, _LIKELY, _FAST)
_AS_THE_CURVES = Growth(0.0, 1.0, 0.0)


def imagine(picture: Picture) -> Imagined | None:
    """Savings are for the same number of samples: half of a step with twice the batch."""
    if not picture.works or picture.base_ns <= 0 or rolls_out(picture):
        return None
    grown = [larger(picture, 2, growth) for growth in _GROWTHS]
    if grown[1] > _FLAT * picture.base_ns:
        return None
    device = sum(work.ns for work in picture.works)
    twice = sum(_times(picture, 2, _AS_THE_CURVES).values())
    skinny = device > 0 and twice < _FLAT * device and device > picture.base_ns / 2
    times = grown[1] / picture.base_ns
    return Imagined(
        worst=_for_half(picture, grown[0]),
        expected=_for_half(picture, grown[1]),
        best=_for_half(picture, grown[2]),
        where=[],
        change=f"batch_size = 2 * batch_size  # a step takes {times:.2f}x as long, for twice the "
        f"samples: {max(0.0, 1 - times / 2):.0%} less for each",
        assumes=f"there are samples and {_room(picture)}; the saving is for the same samples, a "
        "step itself takes longer; what is flat is "
        + ("the traffic of weights, which more rows share" if skinny else "the host's time")
        + _own_time(picture),
    )


def _room(picture: Picture) -> str:
    """Whether twice the activations fit: all that is in use, twice, at most."""
    peak, total = picture.circumstances.peak_bytes, picture.machine.memory_bytes
    if not peak or not total or 2 * peak < _USABLE * total:
        return "memory for it"
    return (
        f"memory for it: {units.size(peak)} of {units.size(total)} are in use, and "
        "gradient checkpointing makes room (prove --try checkpoints)"
    )


def _own_time(picture: Picture) -> str:
    """What it depends on, where the script itself takes a part of the step that counts."""
    before, after = growing_ns(picture, growth=1.0)
    own = float(before.sum()) + after
    if own < _TOLD * picture.base_ns:
        return ""
    return f", as far as the script's own Python ({units.time(own)}) loops over no samples"


def batches(likeliest: Picture, *others: Picture) -> list[BatchRow]:
    """The step's time with larger batches, each with its range; none where samples are calls.

    The others are the same step with a host that is faster or slower.
    """
    rows: list[BatchRow] = []
    if rolls_out(likeliest):
        return rows
    runs = [(likeliest, growth) for growth in _GROWTHS]
    runs += [(other, _LIKELY) for other in others]
    middle, known = _GROWTHS.index(_LIKELY), is_known([likeliest, *others])
    for factor in _FACTORS:
        before = [factor * wall_of(picture.base_ns, picture, likeliest) for picture, _ in runs]
        walls = [wall_of(larger(one, factor, growth), one, likeliest) for one, growth in runs]
        rows.append(
            BatchRow(
                factor=factor,
                wall_ns=Range(low=min(walls), expected=walls[middle], high=max(walls)),
                saving_ns=saving_of(before, walls, middle, known=known),
            )
        )
    return rows


def larger(picture: Picture, factor: int, growth: Growth) -> float:
    """The replayed step with a larger batch, in ns."""
    work_ns = _times(picture, factor, growth)
    before, after = growing_ns(picture, growth=growth.script)
    if picture.script is None:
        return picture.replay(Change(work_ns=work_ns, python_ns=-(factor - 1) * after))
    return picture.replay(
        Change(
            work_ns=work_ns,
            host_ns=picture.script.host_ns + (factor - 1) * before,
            after_ns=picture.script.after_ns + (factor - 1) * after,
        )
    )


def _for_half(picture: Picture, doubled_ns: float) -> Change:
    """A change whose replay is half of the doubled step: what the same samples take."""
    left = min(1.0, doubled_ns / 2 / picture.base_ns)
    if picture.script is None:
        return Change(python_ns=picture.wall_ns * (1 - left))
    work_ns = {index: work.ns * left for index, work in enumerate(picture.works)}
    return Change(
        work_ns=work_ns,
        host_ns=picture.script.host_ns * left,
        after_ns=picture.script.after_ns * left,
        gap_ns=picture.script.gap_ns * left,
    )


def _times(picture: Picture, factor: int, growth: Growth) -> dict[int, float]:
    """Every piece of work with a larger batch: activations grow, weights and gradients do not."""
    constant = _constant_bytes(picture)
    timed = _timed_doubled(picture)
    shortest = picture.machine.overheads.shortest_kernel_ns or 0.0
    doubt = 1 if picture.on_device else _DOUBT_ON_CPU
    times = {}
    for index, work in enumerate(picture.works):
        if index in timed:
            times[index] = grown_ns(work.ns, timed[index], factor) * growth.timed**doubt
            continue
        curve, most = _ratios(picture, work, factor, constant[index])
        ratio = max(1.0, curve + (most - curve) * growth.between)
        start = min(shortest * work.kernels, work.ns)
        times[index] = start + (work.ns - start) * ratio
    return times


def grown_ns(ns: float, twice_ns: float, factor: int) -> float:
    """What a kernel takes is some part for being there, and some for each sample.

    One that takes more than twice as long with twice the batch has outgrown a cache, and for one
    that takes less than with one there is another kernel: from there on it grows in proportion.
    """
    if _ANOTHER_KERNEL * ns < twice_ns < 2 * ns:
        return ns + (factor - 1) * max(0.0, twice_ns - ns)
    return factor / 2 * twice_ns


def twice_ns(ns: float, alone: Alone, together: Alone) -> float:
    """What a call takes in the step with twice the batch, from what it takes by itself.

    What the step's own call takes says how much of its memory it finds in the caches there.
    """
    hot, cold = alone.hot, max(alone.hot, alone.cold)
    missed = min(1.0, max(0.0, (ns - hot) / (cold - hot))) if cold > hot else 0.0
    before = hot + missed * (cold - hot)
    after = together.hot + missed * max(0.0, together.cold - together.hot)
    return min(ns * after / before, max(2 * ns, together.hot, together.cold))


def _timed_doubled(picture: Picture) -> dict[int, float]:
    """What the costliest calls take with twice the batch, in ns, where they could be timed."""
    found = {}
    for (single, double), indices in _costliest(picture).items():
        cached = _may_be_cached(picture, picture.works[indices[0]])
        alone, together = (_alone(picture, one, cached=cached) for one in (single, double))
        if alone is None or together is None:
            continue
        for index in indices:
            ns = picture.works[index].ns
            found[index] = twice_ns(ns, alone, together)
            if not picture.on_device and ns > alone.hot:
                # Or memory at hand that the step asks its system for, however large the batch.
                found[index] = (found[index] + ns + together.hot - alone.hot) / 2
    return found


def _costliest(picture: Picture) -> dict[tuple[Exercise, Exercise], list[int]]:
    """Calls as they are and with twice the batch, the costliest first, and where they are made."""
    flow = picture.flow
    if flow is None:
        return {}
    fixed = fixed_values(picture, flow)
    pairs: dict[tuple[Exercise, Exercise], list[int]] = {}
    for index, work in enumerate(picture.works):
        call = picture.call(work)
        if call is None or work.phase == Phase.OPTIMIZER or work.ns <= 0:
            continue
        grows = [value not in fixed for value in flow.given[index] if value is not None]
        if not any(grows):
            continue
        given = [value is None or value not in fixed for value in flow.given[index]]
        loose = is_loose(work)
        pair = exercise(call, loose=loose), exercise(doubled(call, given), loose=loose)
        if pair[0] != pair[1]:
            pairs.setdefault(pair, []).append(index)
    most = _MOST_TIMED if picture.on_device else _MOST_TIMED_ON_CPU
    ranked = sorted(pairs, key=lambda pair: -sum(picture.works[i].ns for i in pairs[pair]))
    return {pair: pairs[pair] for pair in ranked[:most]}


def _may_be_cached(picture: Picture, work: Work) -> bool:
    """Whether a device's cache may hold a part of what the work touches that counts."""
    held = [level.capacity for level in picture.machine.levels if level.capacity]
    touched = work.cost.bytes if work.cost else 0.0
    return picture.on_device and bool(held) and touched <= CACHE_REACH * max(held)


def _alone(picture: Picture, one: Exercise, *, cached: bool) -> Alone | None:
    hot = picture.timings.ns(one)
    cold = picture.timings.ns(msgspec.structs.replace(one, cold=True)) if cached else hot
    return Alone(hot, cold or hot) if hot else None


def _ratios(picture: Picture, work: Work, factor: int, constant: float) -> tuple[float, float]:
    """How much longer a piece of work takes: by the machine's curves, and at most.

    Larger kernels run nearer to the roof: the curves say by how much.
    """
    if work.phase == Phase.OPTIMIZER or work.ns <= 0:
        return 1.0, 1.0
    cost, machine = work.cost, picture.machine
    if cost is None or not work.floor_ns:
        return float(factor), float(factor)
    if constant >= cost.bytes:
        return 1.0, 1.0
    grown = cost.bytes * factor - constant * (factor - 1)
    if work.bound == "compute":
        unit = max(cost.flops, key=lambda name: cost.flops[name])
        flops = cost.flops[unit]
        before, after = (machine.product_ns(unit, amount) for amount in (flops, flops * factor))
    else:
        before, after = machine.copy_ns(cost.bytes), machine.copy_ns(grown)
    ratio = after / before if before and after else factor
    most = float(factor) if work.bound == "compute" else grown / cost.bytes
    return min(most, max(1.0, ratio)), most


def _constant_bytes(picture: Picture) -> list[float]:
    """For each piece of work, the bytes that do not grow: weights it reads, gradients it makes."""
    flow = picture.flow
    if flow is None:
        return [_weights_by_place(picture, work) for work in picture.works]
    fixed = fixed_values(picture, flow)
    constant = [0.0] * len(picture.works)
    for index in flow.order:
        read = sum(size for value, size in flow.reads[index].items() if value in fixed)
        made = [
            flow.values[value].bytes
            for value in flow.makes[index]
            if value in fixed or goes_to_optimizer(picture, flow.values[value])
        ]
        constant[index] = read + sum(made)
    return constant


def _weights_by_place(picture: Picture, work: Work) -> float:
    """Where memory was not recorded: the smaller operand of a product."""
    call = picture.call(work)
    if call is None or work.op_class != "contraction" or len(call.tensors) < 2:
        return 0.0
    return float(min(tensor.bytes for tensor in call.tensors[:2]))


REMEDY = Remedy(
    fault="batch-too-small",
    group="overhead",
    document=__doc__,
    imagine=imagine,
    combines=False,
)
