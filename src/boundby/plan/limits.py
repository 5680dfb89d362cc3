"""Thresholds in closed form: where a product or a layer stops being bound by memory or links.

The arithmetic of the founding notes and of "How to Scale Your Model". C is a chip's FLOP/s, H its
memory bandwidth, W the bytes/s it receives from other chips (`rate`), all as printed.
"""

from __future__ import annotations

import math

from boundby.plan.chips import Target
from boundby.plan.mesh import Axis, Mesh, group


def critical_batch(
    target: Target, *, compute: str = "bfloat16", weight_bytes: float = 2.0, experts: float = 1.0
) -> float:
    """Tokens at which a product with large weights becomes compute-bound.

    2 B D F / C = w D F / H gives B = w C / (2 H). With E experts of which k are active the
    weights are E/k times as many per token: `experts` = E/k.
    """
    return weight_bytes * target.peak(f"matmul.{compute}") / (2 * target.memory_rate) * experts


def exact_critical_batch(
    flops_per_s: float, bytes_per_s: float, k: int, n: int, weight_bytes: float, other_bytes: float
) -> float:
    """The same with activations counted: 2 B K N / C = (w K N + a B (K + N)) / H, solved for B."""
    per_row = 2 * k * n / flops_per_s - other_bytes * (k + n) / bytes_per_s
    return weight_bytes * k * n / bytes_per_s / per_row if per_row > 0 else math.inf


def intensity(m: int, k: int, n: int, element_bytes: float = 2.0) -> float:
    """FLOP per byte of [m, k] x [k, n]: 2 m k n / (w (m k + k n + m n)); near m when m is small."""
    return 2 * m * k * n / (element_bytes * (m * k + k * n + m * n))


def split_inner_limit(flops_per_s: float, link: float, chips: int = 2) -> float:
    """K above which a product with K split over `chips` is compute-bound.

    Each chip does 2 M (K/n) N operations, then 2 M N bytes cross one link: K/n > C/W.
    """
    return chips * flops_per_s / link


def gather_rate(target: Target, *, rings: int = 1) -> float:
    """Bytes/s at which one chip receives in an all-gather inside its domain."""
    if target.fabric.kind == "torus":
        return 2 * (target.fabric.axis_link or target.link) * rings
    return target.link


def axis_rate(mesh: Mesh, axis: Axis, target: Target) -> float:
    """Bytes/s that one chip receives along an axis: from its links, or between domains at most
    from the NICs of the chips that its domain has in the group."""
    where = group(mesh, axis, target)
    rate = gather_rate(target, rings=where.rings)
    return rate if where.domains == 1 else min(rate, where.local * target.fabric.egress)


def data_parallel_limit(target: Target, rate: float, *, compute: str = "bfloat16") -> float:
    """Tokens per chip that hide the gathering of weights (FSDP) or the sum of gradients.

    4 B D F / C > 2 * 2 D F / W per product, forward or backward: B > C / W.
    """
    return target.peak(f"matmul.{compute}") / rate


def tensor_limit(target: Target, ffn: int, rate: float, *, compute: str = "bfloat16") -> float:
    """Tensor-parallel ways up to which a feed-forward layer hides its activations' transfer.

    4 B D F / (Y C) > 4 B D / W: Y < F W / C.
    """
    return ffn * rate / target.peak(f"matmul.{compute}")


def context_limit(target: Target, ways: int, scores: int, cache: int, rate: float) -> float:
    """Tokens of a sequence from which ring attention hides its keys and values.

    Each of n chips does 2 S^2 N H / n operations on the triangle of scores (N heads of width H:
    `scores`) while the keys and values of S tokens, 2 S k bytes (k elements a token: `cache`),
    arrive: S > n k C / (N H W).
    """
    return ways * cache * target.peak("matmul.bfloat16") / (scores * rate)


def mixed_batch(
    target: Target, ffn: int, rate: float, *, axes: int = 2, compute: str = "bfloat16"
) -> float:
    """Least tokens per chip with the best mix of FSDP and tensor parallelism: (C/W)^2 / (axes F),
    where `axes` is the product of the torus axes given to each."""
    return (target.peak(f"matmul.{compute}") / rate) ** 2 / (axes * ffn)


def best_fsdp(batch: float, chips: int, ffn: int, *, ratio: float = 2.0) -> float:
    """FSDP ways of that mix: sqrt(ratio B n / F); `ratio` = axes for FSDP over axes for tensor."""
    return math.sqrt(ratio * batch * chips / ffn)


def decode_tensor_limit(target: Target, ffn: int, batch: int) -> float:
    """Tensor-parallel ways of a decode step before links, not memory, bound it: F W / (B H)."""
    return ffn * gather_rate(target) / (batch * target.memory_rate)
