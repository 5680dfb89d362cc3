"""Simulates a planned step with the simulator of measured steps (step/simulator).

Layers run in order on the chip's compute stream, the weights' and gradients' collectives on a
stream of the links: a layer waits for its weights, a sum for the layer whose gradients it adds.
Collectives that the compute always waits for (tensor and expert axes) are part of its layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boundby.plan.chips import Target
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.training import Step, Training, plan_step
from boundby.step.simulator import LaunchSequence, Wait, replay

_COMPUTE, _LINKS = 0, 1  # definition: streams
_STEADY = 4  # the most micro-batches that are simulated
_AHEAD = 2  # parts whose weights are gathered before this one's
_LEAST_NS = 1e-3  # the simulator leaves out work that takes no time
_BESIDE = ("fsdp", "data")  # axes whose collectives have a separate stream


class _Work(NamedTuple):
    """One piece of device work; `after` is earlier work on the other stream, -1 for none."""

    ns: float
    stream: int
    after: int = -1


class _Part(NamedTuple):
    """Compute with the collectives that come before and after it, in ns."""

    compute: float
    gather: float = 0.0
    reduce: float = 0.0


def simulated_ns(step: Step, config: ModelConfig, mesh: Mesh, *, overlap: bool = True) -> float:
    """The step's simulated time, with the bubble of the closed form.

    From the third micro-batch on each takes as long as the previous one. Without overlap all
    collectives are on the stream of the compute.
    """
    layers = max(1, round(config.layers / mesh.pipeline))
    counts = sorted({min(step.micro_batches, count) for count in (_STEADY - 1, _STEADY)})
    times = [_replayed_ns(step, layers, mesh, count, overlap) for count in counts]
    more = (step.micro_batches - counts[-1]) * (times[-1] - times[0])
    return times[-1] + more + step.accumulation_ns + step.bubble_ns


def _replayed_ns(step: Step, layers: int, mesh: Mesh, count: int, overlap: bool) -> float:
    """A step of `count` of the micro-batches."""
    works = _works(step, layers, mesh, count)
    issued = np.full(len(works), step.issue_ns * count / len(works))
    waits = np.zeros(len(works), np.int8)
    waits[-1] = Wait.STREAM  # the optimizer's end: steps do not overlap
    none = np.zeros(len(works), np.int8)
    sequence = LaunchSequence(
        host_ns=issued,
        wait=waits,
        phase=none,
        first=np.arange(len(works) + 1),
        after_ns=step.fixed_ns,
        device_ns=np.array([one.ns for one in works]),
        stream=np.array([one.stream if overlap else _COMPUTE for one in works]),
        depends=np.array([one.after for one in works]),
        order=np.arange(len(works)),
        latency_ns=0.0,
        gap_ns=0.0,
    )
    return replay(sequence)


def _works(step: Step, layers: int, mesh: Mesh, count: int) -> list[_Work]:
    """All micro-batches of the fullest stage, then the optimizer.

    The weights of the next layers are gathered before the gradients of this one are summed.
    """
    works: list[_Work] = []
    gathered: list[int] = []  # the work that gathers each part's weights, -1 for none

    def add(ns: float, stream: int, after: int = -1) -> int:
        works.append(_Work(max(ns, _LEAST_NS), stream, after))
        return len(works) - 1

    parts = _parts(step, layers, mesh, count)
    for at, part in enumerate(parts):
        ahead = parts[len(gathered) : at + 1 + _AHEAD]
        gathered += [add(one.gather, _LINKS) if one.gather else -1 for one in ahead]
        done = add(part.compute, _COMPUTE, gathered[at])
        if part.reduce:
            add(part.reduce, _LINKS, done)
    last = next((at for at in reversed(range(len(works))) if works[at].stream == _LINKS), -1)
    add(step.optimizer_ns, _COMPUTE, last)
    return works


def _parts(step: Step, layers: int, mesh: Mesh, count: int) -> list[_Part]:
    """The compute stream in order: layers forward, the head, layers backward."""
    inside = sum(one.exposed_ns for one in step.traffic if one.axis not in _BESIDE)
    waited = inside / (2 * layers * step.micro_batches)
    forward, backward = step.forward_ns / layers + waited, step.backward_ns / layers + waited
    sharded = mesh.gathers
    gather, reduce = _per_layer(step, layers, sharded)
    parts = []
    for micro in range(count):
        first, last = sharded or micro == 0, sharded or micro == count - 1
        parts += [_Part(forward, gather if first else 0.0)] * layers
        parts += [_Part(step.head.ns / step.micro_batches)]
        parts += [_Part(backward, gather if sharded else 0.0, reduce if last else 0.0)] * layers
    return parts


def _per_layer(step: Step, layers: int, sharded: bool) -> tuple[float, float]:
    """Time of one layer's gathering of weights, and of its sum of gradients."""
    beside = [one for one in step.traffic if one.axis in _BESIDE]
    weights = sum(one.total_ns for one in beside if one.name == "weights")
    others = sum(one.total_ns for one in beside if one.name != "weights")
    times = step.micro_batches if sharded else 1
    gather = weights / layers / times
    # Behind ZeRO-3 the gradients' term has the backward pass's gathering too.
    return gather, max(0.0, others / layers / times - (gather if sharded else 0.0))


def simulated_step(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> Step:
    """The parts of a step that add up to the simulated time.

    The difference from the closed form is traffic that waits for its layer, or the host.
    """
    step = plan_step(config, mesh, job, target)
    more = simulated_ns(step, config, mesh, overlap=job.overlap) - step.expected_ns
    traffic = []
    for one in step.traffic:
        exposed = one.exposed_ns
        waits = job.overlap and one.axis in _BESIDE
        if waits and not (more > 0 and step.host_ns):
            exposed = min(one.total_ns, max(0.0, exposed + more))
            exposed = exposed if exposed > _LEAST_NS else 0.0
            more -= exposed - one.exposed_ns
        traffic.append(one._replace(exposed_ns=exposed))
    host = max(0.0, step.host_ns + more)
    return step._replace(traffic=traffic, host_ns=host)
