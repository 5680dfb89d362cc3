"""A training step on a mesh: its operators and collectives, their overlap and their sum.

`plan_step` is the closed form that a search needs: layers one after the other, collectives hidden
behind the compute that can overlap with them. A plan is the same step simulated (simulated.py);
tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from boundby.model import OpCall, Record
from boundby.plan import assumptions, collectives, kernels, memory
from boundby.plan.chips import Target
from boundby.plan.layers import Attention, Passes, Recompute, Slice, Work, head, layer
from boundby.plan.mesh import Axis, Group, Mesh, group
from boundby.plan.model_config import ModelConfig
from boundby.plan.operator import dtype_of


class Training(Record, frozen=True, kw_only=True):
    """The training job: sequences, batch, precision, and how the program runs it.

    `batch` counts sequences of the whole job, `micro_batch` those a replica takes at once.
    `compiled` programs have no cost per operator on the host and pad products, `tuned` ones choose
    the kernel of each 16-bit product by trial. `capacity` is that of each expert relative to its
    even share of the tokens, if others are dropped.
    """

    sequence: int
    batch: float
    micro_batch: float = 1.0
    precision: str = "bf16"
    recompute: Recompute = "none"
    attention: Attention = "fused"
    overlap: bool = True
    tensor_overlap: bool = False
    compiled: bool = False
    tuned: bool = False
    fused_accumulation: bool = False
    capacity: float | None = None
    states: memory.States = memory.States()

    @property
    def shape(self) -> str:
        """Sequences by their length."""
        return f"{self.batch:,.10g} x {self.sequence:,}"

    @property
    def tokens(self) -> float:
        return self.batch * self.sequence


class Traffic(NamedTuple):
    """One collective of a step: its whole time, and its exposed time."""

    name: str
    axis: Axis
    total_ns: float
    exposed_ns: float
    formula: str


class Step(NamedTuple):
    """A step's parts in ns, on the fullest stage; `compute` are all its micro-batches.

    `forward_ns` and `backward_ns` are those of the layers in one of the `micro_batches`,
    `issue_ns` is the host's time for it.
    """

    compute: Work
    head: Work
    traffic: list[Traffic]
    bubble_ns: float
    accumulation_ns: float
    optimizer_ns: float
    host_ns: float
    fixed_ns: float
    hardware_flops: float
    forward_ns: float
    backward_ns: float
    issue_ns: float
    micro_batches: int

    @property
    def expected_ns(self) -> float:
        busy = self.compute.ns + self.head.ns + sum(one.exposed_ns for one in self.traffic)
        others = self.bubble_ns + self.accumulation_ns + self.optimizer_ns + self.fixed_ns
        return busy + self.host_ns + others

    @property
    def serial_ns(self) -> float:
        hidden = sum(one.total_ns - one.exposed_ns for one in self.traffic)
        return self.expected_ns + hidden

    @property
    def overlapped_ns(self) -> float:
        busy = self.compute.ns + self.head.ns + self.accumulation_ns + self.optimizer_ns
        axes = {one.axis for one in self.traffic}
        links = (sum(one.total_ns for one in self.traffic if one.axis == axis) for axis in axes)
        return max(busy + self.host_ns + self.bubble_ns + self.fixed_ns, max(links, default=0.0))


def micro_batches(mesh: Mesh, job: Training) -> int:
    """Micro-batches that each replica runs in a step."""
    per_replica = job.batch / mesh.replicas
    return max(1, round(per_replica / job.micro_batch))


def slice_of(mesh: Mesh, job: Training) -> Slice:
    """One chip's part of one micro-batch."""
    return Slice(
        sequences=job.micro_batch,
        sequence=job.sequence,
        tensor=mesh.tensor,
        context=mesh.context,
        expert=mesh.expert,
        sequence_parallel=mesh.sequence,
        dtype=dtype_of(job.precision),
        # A compiler fuses the softmax.
        attention="softmax" if job.compiled and job.attention == "eager" else job.attention,
        tuned=job.tuned,
        pads=job.compiled,
        capacity=job.capacity,
    )


def plan_step(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> Step:
    """The parts of one step on the fullest pipeline stage."""
    part = slice_of(mesh, job)
    count = micro_batches(mesh, job)
    dense = layer(target, config, part, moe=False)
    moe = layer(target, config, part, moe=True) if config.moe_layers else dense
    share = config.moe_layers / config.layers
    stage_layers = config.layers / mesh.pipeline
    forward, backward = Work(), Work()
    for passes, weight in ((dense, 1 - share), (moe, share)):
        if weight:
            again = _again(passes, job.recompute)
            forward = forward.plus(passes.forward, stage_layers * weight)
            backward = backward.plus(passes.backward, stage_layers * weight)
            backward = backward.plus(again, stage_layers * weight)
    ends = head(target, config, part)
    end_work = ends.forward.plus(ends.backward)
    balanced = config.layers % mesh.pipeline != 0 or mesh.pipeline == 1
    if mesh.pipeline > 1 and balanced:  # the embedding and the head count as a layer
        end_work = Work().plus(end_work, 1 / mesh.pipeline)
    stage = forward.plus(backward)
    attention = (forward.attention + backward.attention) * count
    traffic = _layer_traffic(config, mesh, job, target, part, stage_layers * count, attention)
    traffic += _pipeline_traffic(config, mesh, job, target, part, count)
    exposed = sum(one.exposed_ns for one in traffic if one.axis in ("tensor", "context", "expert"))
    one_micro = stage.ns + exposed / count
    issue = _host_ns(target, job, stage.plus(end_work), mesh, config)
    host = max(0.0, issue - one_micro - end_work.ns) * count
    waited = (exposed + host) / count / 2
    beside = (forward.ns + waited, backward.ns + waited)
    traffic += _weight_traffic(config, mesh, job, target, count, beside)
    each = max(one_micro, _host_ns(target, job, stage, mesh, config))
    bubble = (mesh.pipeline - 1) / mesh.interleave * each
    compiled = job.compiled or target.is_tpu
    return Step(
        compute=Work().plus(stage, count),
        head=Work().plus(end_work, count),
        traffic=traffic,
        bubble_ns=bubble,
        accumulation_ns=0.0
        if job.fused_accumulation
        else (count - 1) * _accumulation_ns(config, mesh, job, target),
        optimizer_ns=_optimizer_ns(config, mesh, target),
        host_ns=host,
        fixed_ns=assumptions.COMPILED_STEP_FIXED_NS if compiled else assumptions.STEP_FIXED_NS,
        hardware_flops=(stage.flops * mesh.pipeline + ends.forward.flops + ends.backward.flops)
        * count
        * mesh.replicas
        * mesh.tensor
        * mesh.context,
        forward_ns=forward.ns,
        backward_ns=backward.ns,
        issue_ns=issue,
        micro_batches=count,
    )


def _again(passes: Passes, recompute: Recompute) -> Work:
    if recompute == "full":
        return passes.forward
    return passes.repeated if recompute == "selective" else Work()


def _host_ns(target: Target, job: Training, work: Work, mesh: Mesh, config: ModelConfig) -> float:
    if job.compiled or target.is_tpu or target.machine.vendor == "aws":
        return 0.0
    gathers = 3 * config.layers / mesh.pipeline if mesh.gathers else 0
    return (work.operators + gathers) * assumptions.EAGER_KERNEL_HOST_NS


def _layer_traffic(
    config: ModelConfig,
    mesh: Mesh,
    job: Training,
    target: Target,
    part: Slice,
    layers: float,
    attention_ns: float,
) -> list[Traffic]:
    """Collectives inside the layers: tensor, context and expert axes.

    Ring attention sends the next keys while it uses the present ones.
    """
    found = []
    again = 1 if job.recompute == "full" else 0
    size = 2.0 * part.tokens * config.hidden
    if mesh.tensor > 1:
        where = group(mesh, "tensor", target)
        both = collectives.all_gather_ns(size, where, target) + collectives.reduce_scatter_ns(
            size, where, target
        )
        if not mesh.sequence:
            both = collectives.all_reduce_ns(size, where, target)
        # Two pairs forward, two backward; with sequence parallelism inputs are gathered again.
        extra = collectives.all_gather_ns(size, where, target) if mesh.sequence else 0.0
        total = ((4 + 2 * again) * both + 2 * extra) * layers
        hidden = assumptions.TENSOR_HIDDEN_SHARE if job.overlap and job.tensor_overlap else 0.0
        found.append(Traffic("activations", "tensor", total, total * (1 - hidden), "tensor"))
    if mesh.context > 1:
        where = group(mesh, "context", target)
        keys = 2.0 * part.tokens * mesh.context * config.kv_elements_per_token / mesh.tensor
        total = (3 + again) * collectives.all_gather_ns(keys, where, target) * layers
        found.append(
            _hidden("keys and values", "context", total, attention_ns, job, config, "context")
        )
    if mesh.expert > 1 and config.moe_layers:
        where = group(mesh, "expert", target)
        rows = part.tokens / mesh.tensor
        one = collectives.dispatch_ns(
            2.0 * rows * config.hidden, config.active_experts, where, target
        )
        total = (4 + 2 * again) * one * layers * config.moe_layers / config.layers
        found.append(Traffic("tokens to experts", "expert", total, total, "dispatch"))
    return found


def _pipeline_traffic(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target, part: Slice, count: int
) -> list[Traffic]:
    if mesh.pipeline == 1:
        return []
    size = 2.0 * part.outer_tokens * config.hidden
    crosses = mesh.stride("pipeline") >= target.fabric.domain and not target.is_tpu
    one = collectives.send_ns(size, crosses=crosses, target=target)
    total = 2 * one * mesh.interleave * count
    # Sends overlap with the next micro-batch, except those that fill and drain the pipeline.
    exposed = 2 * one * (mesh.pipeline - 1) if job.overlap else total
    return [Traffic("stage boundaries", "pipeline", total, min(total, exposed), "send")]


def _weight_traffic(
    config: ModelConfig,
    mesh: Mesh,
    job: Training,
    target: Target,
    count: int,
    beside: tuple[float, float],
) -> list[Traffic]:
    """Gradients summed over replicas, weights gathered; overlapped with forward and backward.

    `beside` are the times of one micro-batch forward and backward, with what they wait for.
    """
    forward_ns, backward_ns = beside
    mesh = mesh.holders
    params = memory.weights_per_chip(config, mesh).total
    found = []
    if mesh.fsdp > 1:
        gather = _by_layer(collectives.all_gather_ns, 2 * params, config, mesh, "fsdp", target)
        held = job.states.gradients / (2 if mesh.zero == 3 else 1) * params
        reduce = _by_layer(collectives.reduce_scatter_ns, held, config, mesh, "fsdp", target)
        times = count if mesh.zero == 3 else 1  # once a step without ZeRO-3
        total_f, total_b = gather * times, reduce * times
        if mesh.zero == 3:
            total_b += gather * times
        beside_f, beside_b = forward_ns * times, backward_ns * times
        found.append(_hidden("weights", "fsdp", total_f, beside_f, job, config, "all-gather"))
        found.append(_hidden("gradients", "fsdp", total_b, beside_b, job, config, "reduce-scatter"))
        backward_ns = max(0.0, backward_ns - total_b / times)  # the links have these to send first
    if mesh.data > 1:
        shard = job.states.gradients * params / (mesh.fsdp if mesh.zero >= 2 else 1)
        total = _by_layer(collectives.all_reduce_ns, shard, config, mesh, "data", target)
        found.append(_hidden("gradients", "data", total, backward_ns, job, config, "all-reduce"))
    return found


def _by_layer(
    collective: Callable[[float, Group, Target], float],
    size: float,
    config: ModelConfig,
    mesh: Mesh,
    axis: Axis,
    target: Target,
) -> float:
    """One collective for each layer of the stage: weights and gradients move when needed."""
    calls = max(1.0, config.layers / mesh.pipeline)
    return calls * collective(size / calls, group(mesh, axis, target), target)


def _hidden(
    name: str,
    axis: Axis,
    total: float,
    beside: float,
    job: Training,
    config: ModelConfig,
    formula: str,
) -> Traffic:
    if not job.overlap:
        return Traffic(name, axis, total, total, formula)
    # the first gather, or the last sum, overlaps with nothing
    first = total / max(1, config.layers)
    return Traffic(name, axis, total, max(first, total - beside), formula)


def _accumulation_ns(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> float:
    """Gradients of one micro-batch added to the main gradients: each of those read and written.

    With ZeRO-3 a chip adds its own part only. Programs that sum in the products that compute the
    gradients (Megatron with Transformer Engine) hide it behind their arithmetic.
    """
    params = memory.weights_per_chip(config, mesh).total / (
        mesh.holders.fsdp if mesh.gathers else 1
    )
    return kernels.stream(target, 2 * job.states.gradients * params).ns


def _optimizer_ns(config: ModelConfig, mesh: Mesh, target: Target) -> float:
    """Optimizer: fused AdamW on a chip's own part of the states, bound by memory.

    Weights, gradients and both moments are read, weights and moments written, in 32 bits:
    28 bytes a parameter.
    """
    params = memory.weights_per_chip(config, mesh).total / mesh.holders.fsdp
    one = kernels.tensor(max(1, round(params)), dtype="float32")
    call = OpCall(name="aten::_fused_adamw_", args=((one,), (one,), (one,), (one,)))
    return kernels.pointwise(target, call).ns
