"""One matrix product on one chip or a few: T_math, T_memory, T_links, their maximum and sum."""

from __future__ import annotations

import math
import re

from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.plan import PlanLimit, PlanResult, PlanTerm, TermKind
from boundby.plan import assumptions, collectives, kernels, limits
from boundby.plan.chips import Target
from boundby.plan.mesh import Group

DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8",
    "mxfp8": "float8",
    "int8": "int8",
    "nvfp4": "float4",
    "mxfp4": "float4",
    "fp4": "float4",
    "fp32": "float32",
}
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float8": 1, "int8": 1, "float4": 0.5, "float32": 4}


def dtype_of(name: str) -> str:
    """The operator's dtype for a precision as users write it."""
    found = name.lower()
    if found in ELEMENT_BYTES:  # the dtype itself
        return found
    if found not in DTYPES:
        raise BoundbyError(
            f"no precision is called {name}: choose one of {', '.join(DTYPES)}, or int4 as "
            "--weights of a served model"
        )
    return DTYPES[found]


def wider_unit(target: Target, precision: str) -> list[str]:
    """A note if the chip has no unit for this precision."""
    unit = f"matmul.{dtype_of(precision)}"
    if (runs := target.unit_of(unit)) == unit:
        return []
    runs = runs.removeprefix("matmul.")
    return [f"{target.name} has no unit for {precision}: its products run in {runs}"]


def parse_shape(text: str) -> tuple[int, int, int]:
    """M, K and N from "8192x8192x8192"."""
    if not text:
        raise BoundbyError(
            "matmul needs a shape: matmul 512x8192x28672 is [512, 8192] x [8192, 28672]"
        )
    found = re.fullmatch(r"(\d+)[x,](\d+)[x,](\d+)", text.lower())
    if not found or not all(int(one) for one in found.groups()):
        raise BoundbyError(f"cannot read {text!r}: write a product as MxKxN, as in 512x8192x28672")
    m, k, n = (int(one) for one in found.groups())
    return m, k, n


def plan_product(
    shape: tuple[int, int, int], target: Target, *, chips: int = 1, precision: str = "bf16"
) -> PlanResult:
    """[M, K] x [K, N] with K split over the chips, whose partial results are then summed.

    One chip: the larger of its arithmetic and its traffic. More: each multiplies its part of K,
    and an all-reduce of M N elements follows.
    """
    m, k, n = shape
    if chips < 1 or k % chips:
        raise BoundbyError(f"K = {k} does not divide over {chips} chips: {_divisors(k, chips)}")
    dtype = dtype_of(precision)
    kernel = kernels.product(target, m, k // chips, n, dtype, alone=True)
    out = 2 * m * n
    group = Group(size=chips, local=min(chips, target.fabric.domain), domains=1)
    link_ns = collectives.all_reduce_ns(out, group, target)
    unit = f"matmul.{dtype}"
    math_ns = kernel.flops / target.peak(unit) * 1e9
    size = ELEMENT_BYTES[dtype]
    memory_ns = (size * (m + n) * k / chips + out) / target.memory_rate * 1e9
    parts: list[tuple[str, TermKind, float, str]] = [
        ("arithmetic", "matmul", math_ns, "matmul"),
        ("memory traffic", "memory", memory_ns, "memory"),
        ("all-reduce of the result", "collective", link_ns, "all-reduce"),
    ]
    largest = max(parts, key=lambda part: part[2])
    expected = kernel.ns + link_ns
    low, high = max(part[2] for part in parts), sum(part[2] for part in parts)
    spread = 1 + assumptions.STEP_UNCERTAINTY
    return PlanResult(
        title=f"matmul {m}x{k}x{n} {precision}",
        chip=target.name,
        chips=chips,
        step_ns=Estimate(low=low, expected=expected, high=max(high, expected) * spread),
        overlapped_ns=low,
        serial_ns=high,
        bound_by=largest[0],
        terms=[
            PlanTerm(
                name=name,
                kind=kind,
                total_ns=ns,
                exposed_ns=_exposed(kind, kernel.ns, link_ns, math_ns >= memory_ns),
                formula=formula,
            )
            for name, kind, ns, formula in parts
            if ns
        ],
        model_flops=2.0 * m * k * n,
        mfu=2.0 * m * k * n / (expected * 1e-9 * chips * target.peak(unit)),
        mfu_convention="2 M K N over the printed dense peak",
        limits=_limits(target, dtype, m, k, n, chips),
        notes=[
            "perfect overlap, no overlap and the times of the parts are at the printed rates; "
            "the expected and exposed times are at the rates that such products reach",
            *wider_unit(target, precision),
        ],
    )


def _exposed(kind: TermKind, kernel_ns: float, link_ns: float, math_bound: bool) -> float:
    if kind == "collective":
        return link_ns
    return kernel_ns if (kind == "matmul") == math_bound else 0.0


def _divisors(k: int, chips: int) -> str:
    below = max(one for one in range(1, max(1, chips) + 1) if k % one == 0)
    return f"{below} would"


def _limits(target: Target, dtype: str, m: int, k: int, n: int, chips: int) -> list[PlanLimit]:
    size = ELEMENT_BYTES[dtype]
    found = [
        PlanLimit(
            name="intensity",
            value=limits.intensity(m, k, n, size),
            unit="FLOP/B",
            meaning="operations per byte of compulsory traffic",
        ),
        PlanLimit(
            name="critical batch",
            value=limits.critical_batch(target, compute=dtype, weight_bytes=size),
            unit="rows",
            meaning="rows above which a product with large weights is compute-bound",
        ),
    ]
    rates = target.peak(f"matmul.{dtype}"), target.memory_rate
    exact = limits.exact_critical_batch(*rates, k, n, size, size)
    if math.isfinite(exact):
        found.append(
            PlanLimit(
                name="exact critical batch",
                value=exact,
                unit="rows",
                meaning=f"the same for K = {k} and N = {n}, with the rows themselves counted",
            )
        )
    if chips > 1:
        link = target.fabric.axis_link or target.link
        found.append(
            PlanLimit(
                name="inner dimension",
                value=limits.split_inner_limit(target.peak(f"matmul.{dtype}"), link, chips),
                unit="elements",
                meaning="K above which the split product is compute-bound, not link-bound",
            )
        )
    return found
