"""A served model as a plan: time to first token and per token, over batch sizes, and limits."""

from __future__ import annotations

import msgspec

from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.plan import PlanLimit, PlanMemory, PlanResult, PlanServing, PlanTerm, TermKind
from boundby.plan import assumptions, limits, serving
from boundby.plan.chips import Target
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.serving import Decode, Service


def _spread(ns: float, uncertainty: float = assumptions.SERVE_UNCERTAINTY) -> Estimate:
    wide = 1 + uncertainty
    return Estimate(low=ns / wide, expected=ns, high=ns * wide)


_TOGETHER = "the time to first token is that of all prompts of the batch together"


def check(config: ModelConfig, mesh: Mesh) -> None:
    """Raise for a model that generates no text, or a mesh that cannot serve it."""
    if not config.causal or not config.vocab or not config.head:
        raise BoundbyError(f"{config.name} generates no tokens: a decoder of text would")
    if mesh.replicas * mesh.context > 1:
        raise BoundbyError(
            "one replica is planned: a mesh of tensor, pipeline and expert axes would serve it"
        )
    if config.heads % mesh.tensor:
        most = max(one for one in range(1, mesh.tensor + 1) if config.heads % one == 0)
        raise BoundbyError(
            f"{config.heads} attention heads do not divide over {mesh.tensor} chips: {most} would"
        )
    if mesh.pipeline > config.layers:
        raise BoundbyError(
            f"{config.layers} layers do not fill pipeline={mesh.pipeline}: "
            f"at most {config.layers} stages would"
        )
    if mesh.expert not in (1, mesh.tensor) or (config.experts or 1) % mesh.expert:
        ways = f" or expert={mesh.tensor}" if config.experts % mesh.tensor == 0 else ""
        raise BoundbyError(
            f"{config.experts} experts do not spread over expert={mesh.expert} of "
            f"{mesh.tensor} tensor ways: expert=1{ways if config.experts else ''} would"
        )


def plan_service(
    config: ModelConfig, service: Service, target: Target, *, usd_per_hour: float | None = None
) -> PlanResult:
    """Prefill and decode of a batch on one replica."""
    fitting = serving.largest_batch(config, service, target)
    if fitting < 1:
        raise BoundbyError(_what_would_fit(config, service, target))
    step = serving.decode(config, service, target, service.batch)
    first = serving.prefill_ns(config, service, target, service.batch)
    request = first + service.output_tokens * step.ns
    rate = serving.throughput(config, service, target, service.batch)
    parts = _terms(step)
    tokens = service.input_tokens + service.output_tokens
    notes = config.described(tokens)
    if service.batch > 1:
        notes.append(_TOGETHER)
    if service.batch > fitting:
        notes.append(f"batch {fitting} is the largest that fits")
    cost = usd_per_hour * service.chips / 3600 / rate * 1e6 if usd_per_hour else None
    return PlanResult(
        title=f"{config.name} served, batch {service.batch}",
        chip=target.name,
        chips=service.chips,
        mesh={axis: ways for axis, ways in _axes(service).items() if ways > 1},
        step_ns=_spread(step.ns),
        overlapped_ns=max(step.products + step.cache, step.links + step.exchange),
        serial_ns=step.ns,
        bound_by=max(parts, key=lambda one: one.exposed_ns).name,
        terms=parts,
        memory=[
            PlanMemory(name="weights", bytes=serving.weight_bytes(config, service)),
            PlanMemory(
                name="keys and values",
                bytes=service.batch * serving.cache_bytes_per_sequence(config, service, tokens),
            ),
        ],
        memory_capacity=target.memory_bytes,
        fits=service.batch <= fitting,
        limits=_limits(config, service, target, step),
        usd_per_million_tokens=cost,
        serving=PlanServing(
            batch=service.batch,
            input_tokens=service.input_tokens,
            output_tokens=service.output_tokens,
            first_token_ns=_spread(first, assumptions.SERVER_UNCERTAINTY),
            per_token_ns=_spread(step.ns),
            request_ns=_spread(request, assumptions.SERVER_UNCERTAINTY),
            output_tokens_per_s=rate,
            largest_batch=fitting,
            curve=_curve(config, service, target, fitting),
        ),
        notes=notes,
    )


def _what_would_fit(config: ModelConfig, service: Service, target: Target) -> str:
    ways = [one for one in range(service.tensor, config.heads + 1) if config.heads % one == 0]
    wider = (msgspec.structs.replace(service, tensor=one) for one in ways)
    enough = next((one for one in wider if serving.largest_batch(config, one, target)), None)
    would = f"{enough.chips} chips, or weights of fewer bits," if enough else "a shorter prompt"
    return f"{config.name} does not fit {service.chips} x {target.name} for serving: {would} would"


def _curve(
    config: ModelConfig, service: Service, target: Target, fitting: int
) -> list[tuple[int, float, float]]:
    """Batches that fit, with the time per token and the throughput of each."""
    batches = [4**power for power in range(fitting.bit_length()) if 4**power <= fitting]
    return [
        (
            batch,
            serving.decode(config, service, target, batch).ns,
            serving.throughput(config, service, target, batch),
        )
        for batch in batches
        if batch <= assumptions.LARGEST_BATCH
    ]


def _terms(step: Decode) -> list[PlanTerm]:
    """The parts of a token."""
    parts: list[tuple[str, TermKind, float, str, str | None]] = [
        ("weights and products", "matmul", step.products, "weights", None),
        ("keys and values", "memory", step.cache, "keys-and-values", None),
        ("other operators", "memory", step.other_kernels, "memory", None),
        ("all-reduces", "collective", step.links, "all-reduce", "tensor"),
        ("tokens to experts", "collective", step.exchange, "dispatch", "expert"),
        ("engine", "overhead", step.fixed, "engine", None),
    ]
    return [
        PlanTerm(name=name, kind=kind, axis=axis, total_ns=ns, exposed_ns=ns, formula=formula)
        for name, kind, ns, formula, axis in parts
        if ns > 0
    ]


def _axes(service: Service) -> dict[str, int]:
    return {"tensor": service.tensor, "expert": service.expert, "pipeline": service.pipeline}


def _limits(config: ModelConfig, service: Service, target: Target, step: Decode) -> list[PlanLimit]:
    tokens = service.input_tokens + service.output_tokens
    cache = serving.cache_bytes_per_sequence(config, service, tokens) * service.chips / tokens
    found = [
        PlanLimit(
            name="critical batch",
            value=limits.critical_batch(
                target,
                compute=service.compute,
                weight_bytes=service.weight_bytes,
                experts=config.sparsity,
            ),
            unit="sequences",
            meaning="batch above which a decode step is compute-bound",
        ),
        PlanLimit(
            name="keys and values",
            value=cache,
            unit="B",
            meaning="of one token, over all layers and chips, copies included",
        ),
    ]
    if step.links:
        ffn = config.moe_ffn * config.active_experts if config.experts else config.ffn
        found += [
            PlanLimit(
                name="one all-reduce",
                value=step.links / serving.all_reduces(config, service) * 1e-3,
                unit="us",
                meaning=f"{serving.all_reduces(config, service)} of them for each token",
            ),
            PlanLimit(
                name="decode tensor limit",
                value=limits.decode_tensor_limit(target, ffn, service.batch),
                unit="ways",
                meaning="above it the transfers take longer than reading the weights",
            ),
        ]
    return found
