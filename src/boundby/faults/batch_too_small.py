"""The batch is too small to keep the device busy.

What it looks for
    A step that would take little longer with twice the batch: simulated with twice the activations,
    the same weights and the same host time. Operators take what the machine's measured curves give
    for their larger size; the worst case is proportional to the batch. Time of the script's own
    Python code may grow with the batch: the best case assumes that it does not, the worst case that
    it is proportional, and code that calls a function repeatedly is expected to be proportional.

Why it costs time
    Host time, optimizer time and weight traffic are paid once per step, however many samples it
    contains. An overhead-bound step does twice the work in the same time.

What to change
    Double the batch and adjust the learning rate, or use fewer, larger accumulation steps.

When it does not help
    When the device limits the step: twice the batch takes twice the time. A product with few rows
    also scales well because its weights are read once for all rows; the gain is real, but the cause
    is bandwidth and not the host, and the finding says which. A larger batch needs more memory and
    may train worse per sample. Steps that call the model many times to generate their samples (a
    rollout) are not reported: more samples are more calls.

Measured on
    BERT (12 layers) on an H200: twice the batch took 61.2 ms, predicted 60.8 ms; four times 112 ms,
    predicted 112 ms.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.detection import FLAT_STEP
from boundby.model.assumptions.device import USABLE_MEMORY
from boundby.model.assumptions.host import CPU_WAIT_LIMIT
from boundby.model.estimate import Estimate
from boundby.model.finding import BatchRow
from boundby.step.batch_growth import AS_THE_CURVES, FAST, LIKELY, SLOW, Growth, times_with
from boundby.step.model import Edit, StepModel
from boundby.step.prediction import is_known, saving_of, wall_of
from boundby.step.user_python_growth import growing_ns, rolls_out

_FACTORS = (2, 4)  # reported factors
# The share of the step from which on the script's own Python is mentioned.
_LEAST_SHARE = 0.02
_GROWTHS = (SLOW, LIKELY, FAST)


def detect(step: StepModel) -> Detection | None:
    """Savings are for the same number of samples: half of a step with twice the batch."""
    if not step.op_records or step.base_ns <= 0 or not _is_predictable(step):
        return None
    grown = [larger(step, 2, growth) for growth in _GROWTHS]
    if grown[1] > FLAT_STEP.value * step.base_ns:
        return None
    device = step.cpu_contention * sum(record.ns for record in step.op_records)
    twice = step.cpu_contention * sum(times_with(step, 2, AS_THE_CURVES).values())
    skinny = twice < FLAT_STEP.value * device and 2 * device - twice > step.base_ns - device
    times = grown[1] / step.base_ns
    low, expected, high = (max(0.0, step.base_ns - twice_ns / 2) for twice_ns in grown)
    return Detection.of_saving(
        Estimate(low=low, expected=expected, high=high),
        where=[],
        change=f"batch_size = 2 * batch_size  # a step takes {times:.2f}x as long, for twice the "
        f"samples: {max(0.0, 1 - times / 2):.0%} less per sample",
        assumes=f"{_samples(step)} and {_room(step)}; "
        + ("the traffic of weights" if skinny else "the host's time")
        + " does not grow with the batch"
        + _own_time(step),
    )


def _is_predictable(step: StepModel) -> bool:
    """Whether there is a batch to enlarge, on a machine quiet enough to predict it.

    A step on a whole graph, recognised by sparse products, has no batch.
    """
    if rolls_out(step) or step.host_counters.cpu_wait_share > CPU_WAIT_LIMIT.value:
        return False
    return not any("sparse" in record.name for record in step.op_records)


def _samples(step: StepModel) -> str:
    if step.evidence.fixed_inputs:
        return "the inputs, the same in every step, are not all the data there is"
    return "more samples are available"


def _room(step: StepModel) -> str:
    """Whether twice the activations fit: at most twice all memory in use."""
    peak, total = step.host_counters.peak_bytes, step.machine.memory_bytes
    if not peak or not total or 2 * peak < USABLE_MEMORY.value * total:
        return "memory for it"
    return (
        f"memory for it: {units.size(peak)} of {units.size(total)} are in use, and "
        "gradient checkpointing makes room (prove --try checkpoints)"
    )


def _own_time(step: StepModel) -> str:
    """The assumption about the script's own Python, if it takes a large part of the step."""
    own = growing_ns(step, growth=1.0).ns
    if own < _LEAST_SHARE * step.base_ns:
        return ""
    return f", if the script's own Python ({units.time(own)}) does not loop over samples"


def batches(likeliest: StepModel, *others: StepModel) -> list[BatchRow]:
    """The step's time with larger batches, each with its range; none if samples are model calls.

    The other models are the same step with a faster or slower host.
    """
    rows: list[BatchRow] = []
    # Only for torch's operators is it known which operands grow with the batch.
    if not _is_predictable(likeliest) or likeliest.framework != "torch":
        return rows
    runs = [(likeliest, growth) for growth in _GROWTHS]
    runs += [(other, LIKELY) for other in others]
    middle, known = _GROWTHS.index(LIKELY), is_known([likeliest, *others])
    leasts = [0.0] * len(runs)
    for factor in _FACTORS:
        before = [factor * wall_of(step.base_ns, step, likeliest) for step, _ in runs]
        walls = [wall_of(larger(one, factor, growth), one, likeliest) for one, growth in runs]
        # More samples do not take less time.
        walls = [max(wall, least) for wall, least in zip(walls, leasts, strict=True)]
        leasts = walls
        rows.append(
            BatchRow(
                factor=factor,
                wall_ns=Estimate(low=min(walls), expected=walls[middle], high=max(walls)),
                saving_ns=saving_of(before, walls, middle, known=known),
            )
        )
    return rows


def larger(step: StepModel, factor: int, growth: Growth) -> float:
    """The simulated step with a larger batch, in ns."""
    grown = growing_ns(step, growth=growth.script)
    edit = Edit.set_time(times_with(step, factor, growth))
    return step.evaluate(edit + Edit.save_host(grown * (1 - factor)))


FAULT = Fault(
    id="batch-too-small",
    title="Batch too small",
    kind="tuning",
    group="overhead",
    stage=Stage.LAUNCHES,
    document=__doc__,
    detect=detect,
    combines=False,
    relative_to="samples",
)
