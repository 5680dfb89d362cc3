"""Times of a served model: prefill, one step of decode, throughput; and the batch that fits."""

from __future__ import annotations

from typing import NamedTuple

from boundby.model import Record
from boundby.plan import assumptions, collectives, kernels
from boundby.plan.chips import Target
from boundby.plan.layers import Slice, Work, _projections, head, layer
from boundby.plan.mesh import Group
from boundby.plan.model_config import ModelConfig

_WEIGHT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float8": 1.0, "int8": 1.0, "float32": 4.0}


class Service(Record, frozen=True, kw_only=True):
    """How a model is served; `pipeline` stages run one after the other.

    `weights` and `head` are dtypes; int4 weights have two 16-bit scales per `group`. `host_ns` is
    the engine's host time per operator without a replayed graph, `stream_bytes_per_s` the highest
    rate at which its kernels read.
    """

    batch: int
    input_tokens: int
    output_tokens: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    weights: str = "bfloat16"
    group: int = assumptions.INT4_GROUP
    head: str = "bfloat16"
    compute: str = "bfloat16"
    cache_bytes: float = 2.0
    host_ns: float = 0.0
    stream_bytes_per_s: float | None = None

    @property
    def chips(self) -> int:
        return self.tensor * self.pipeline

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight of a layer."""
        if self.weights == "int4":
            return 0.5 + 4 / self.group
        return _WEIGHT_BYTES[self.weights]

    def product(self, target: Target, m: int, k: int, n: int) -> float:
        """Time of a product with the layers' weights."""
        return kernels.weight_product(
            target,
            m,
            k,
            n,
            self.weights,
            group=self.group,
            compute=self.compute,
            most_bytes_per_s=self.stream_bytes_per_s,
        ).ns


class Decode(NamedTuple):
    """One token for each sequence of the batch: parts in ns."""

    products: float
    cache: float
    other_kernels: float
    links: float
    exchange: float
    fixed: float

    @property
    def ns(self) -> float:
        parts = self.products + self.cache + self.other_kernels + self.fixed
        return parts + self.links + self.exchange


def _group(service: Service, target: Target) -> Group:
    local = min(service.tensor, target.fabric.domain)
    return Group(size=service.tensor, local=local, domains=max(1, service.tensor // local))


def _part(service: Service, sequences: float) -> Slice:
    return Slice(
        sequences=sequences,
        sequence=max(1, service.input_tokens),
        tensor=service.tensor,
        expert=service.expert,
        sequence_parallel=False,
        dtype=service.compute,
    )


def weight_bytes(config: ModelConfig, service: Service) -> float:
    """Weights on one chip; tables stay in 16 bits if the layers have fewer."""
    layers = config.params - config.vocab_params
    return (layers * service.weight_bytes + config.vocab_params * 2) / service.chips


def cache_bytes_per_sequence(config: ModelConfig, service: Service, tokens: float) -> float:
    """Bytes of the keys and values of one sequence on one chip.

    2 kv_heads head_dim elements a token and layer (of latent attention: its rank and the rotated
    part), over the stages, and over the tensor axis as far as there are heads: beyond that each
    is kept more than once, as is a latent. Layers with a window keep its tokens only.
    """
    kv = config.kv_elements_per_token
    split = service.tensor if config.latent is None else 1
    split = min(split, config.kv_heads)
    full = (1 - config.windowed) * tokens
    near = config.windowed * min(tokens, config.window or tokens)
    return kv * (full + near) * config.layers * service.cache_bytes / (split * service.pipeline)


def largest_batch(config: ModelConfig, service: Service, target: Target) -> int:
    """Sequences whose caches fit beside the weights.

    Servers fill a share of the memory or, where the weights leave nothing of it, of the rest.
    """
    share, weights = assumptions.SERVE_MEMORY_SHARE, weight_bytes(config, service)
    tokens = service.input_tokens + service.output_tokens
    each = cache_bytes_per_sequence(config, service, tokens)
    room = target.memory_bytes * share - weights
    if room < each:
        room = (target.memory_bytes - weights) * share
    return max(0, int(room // each))


def decode(config: ModelConfig, service: Service, target: Target, batch: int) -> Decode:
    """A token for each of `batch` sequences, half of the output already generated.

    Every weight that a token meets is read once, and every sequence's keys and values.
    """
    part = _part(service, 1)
    shapes = _projections(config, part)
    per_layer = sum(service.product(target, batch, k, n) for k, n in shapes)
    dense = config.layers - config.moe_layers
    wide = config.ffn * (2 if config.gated else 1)
    split = service.tensor
    feed = [(config.hidden, wide // split), (config.ffn // split, config.hidden)]
    dense_ns = sum(service.product(target, batch, k, n) for k, n in feed)
    products = config.layers * per_layer + dense * dense_ns
    if config.moe_layers:
        products += config.moe_layers * _expert_ns(config, service, target, batch)
    vocab = max(1, config.vocab // split)
    products += kernels.weight_product(
        target,
        batch,
        config.hidden,
        vocab,
        service.head,
        group=service.group,
        most_bytes_per_s=service.stream_bytes_per_s,
    ).ns
    tokens = service.input_tokens + service.output_tokens / 2
    cache = batch * cache_bytes_per_sequence(config, service, tokens) * service.pipeline
    count = config.layers * (assumptions.DECODE_KERNELS + len(shapes) + len(feed))
    device = Decode(
        products=products,
        cache=kernels.stream(target, cache).ns,
        other_kernels=config.layers * assumptions.DECODE_KERNELS * assumptions.DECODE_KERNEL_NS,
        links=_links_ns(config, service, target, batch, _small_collective_ns(target)),
        exchange=_exchange_ns(config, service, target, batch, _small_collective_ns(target)),
        fixed=0.0,
    )
    host = max(0.0, count * service.host_ns - device.ns)
    return device._replace(fixed=assumptions.DECODE_FIXED_NS + host)


def _expert_ns(config: ModelConfig, service: Service, target: Target, batch: int) -> float:
    """Experts that a batch meets: E (1 - (1 - k/E)^B) of E, each read once."""
    met = config.experts * (1 - (1 - config.active_experts / config.experts) ** batch)
    rows = max(1, round(batch * config.active_experts / met))
    wide = config.moe_ffn * (2 if config.gated else 1)
    feed = [(config.hidden, wide), (config.moe_ffn, config.hidden)]
    one = sum(service.product(target, rows, k, n) for k, n in feed)
    return one * (met / service.tensor + config.shared_experts / service.tensor)


def _small_collective_ns(target: Target) -> float:
    return (
        assumptions.PCIE_SMALL_COLLECTIVE_NS
        if target.fabric.kind == "pcie"
        else assumptions.SMALL_COLLECTIVE_NS
    )


def _links_ns(
    config: ModelConfig, service: Service, target: Target, rows: int, start_ns: float
) -> float:
    """All-reduces over the tensor axis; small ones cost their start."""
    if service.tensor == 1:
        return 0.0
    group = _group(service, target)
    size = 2.0 * rows * config.hidden
    whole = collectives.all_reduce_ns(size, group, target)
    latency = collectives.all_reduce_ns(1.0, group, target)
    return all_reduces(config, service) * (whole - latency + max(start_ns, 0.0))


def all_reduces(config: ModelConfig, service: Service) -> int:
    """Two per layer; where experts are spread, their tokens are exchanged instead."""
    return 2 * config.layers - (config.moe_layers if service.expert > 1 else 0)


def _exchange_ns(
    config: ModelConfig, service: Service, target: Target, rows: int, start_ns: float
) -> float:
    """Tokens sent to their experts and back, in each layer that has experts."""
    if service.expert == 1:
        return 0.0
    group = _group(service, target)
    size = 2.0 * rows * config.hidden / service.tensor
    one = collectives.dispatch_ns(size, config.active_experts, group, target)
    latency = collectives.dispatch_ns(1.0, config.active_experts, group, target)
    return 2 * config.moe_layers * (one - latency + start_ns)


def prefill_ns(config: ModelConfig, service: Service, target: Target, sequences: float) -> float:
    """The prompts of so many sequences, all tokens at once."""
    part = _part(service, sequences)
    dense = _fused(layer(target, config, part, moe=False).forward)
    moe = _fused(layer(target, config, part, moe=True).forward) if config.moe_layers else 0.0
    compute = (config.layers - config.moe_layers) * dense + config.moe_layers * moe
    last = Slice(sequences=sequences, sequence=1, tensor=service.tensor, sequence_parallel=False)
    stream = weight_bytes(config, service) * service.pipeline
    compute = max(compute, kernels.stream(target, stream).ns)
    start = 2 * assumptions.COLLECTIVE_START_NS
    links = _links_ns(config, service, target, part.tokens, start)
    links += _exchange_ns(config, service, target, part.tokens, start)
    return compute + head(target, config, last).forward.ns + links + assumptions.DECODE_FIXED_NS


def _fused(work: Work) -> float:
    """Engines fuse operators that a training framework runs as several passes over memory."""
    return work.ns - work.memory + work.memory / assumptions.PASSES


def throughput(config: ModelConfig, service: Service, target: Target, batch: int) -> float:
    """Output tokens per second of a server that keeps `batch` sequences running.

    A request costs its own prefill and its share of `output` decode steps.
    """
    step = decode(config, service, target, batch).ns
    prompt = prefill_ns(config, service, target, batch) / batch
    request = prompt + service.output_tokens * step / batch
    stages = 1 if batch < service.pipeline else service.pipeline
    return service.output_tokens / (request * 1e-9) * min(stages, batch)
