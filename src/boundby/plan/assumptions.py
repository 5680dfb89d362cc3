"""Every constant of `boundby plan` that is assumed, with its source and plausible range.

Datasheet figures are in hardware/chips.toml. A name marked FITTED was chosen on the sources named
in `FIT_SOURCES`; docs/figures/plan.md scores the other sources separately.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Sources (prefixes of the row ids) on which FITTED constants were chosen; all others only score.
FIT_SOURCES = (
    "bloom",
    "mosaic",
    "titan",
    "tpu",
    "vts",
    "dgxc",
    "gpt-fast",
    "gpu-bench-llamacpp",
    "mlc-llm-perf-bench",
    "stas00/ml-engineering",
    "hisohara/ai-scripts",
)

# ---- chips -------------------------------------------------------------------------------------

# A chip without its own fabric is in a PCIe server: eight of them, one 100 Gb/s NIC each.
PCIE_DOMAIN, PCIE_EGRESS = 8, 12.5e9
# SMs if the table has none: only wave quantisation depends on it (range 46 to 188).
UNKNOWN_UNITS = 100
# Without a unit for a type, its products run on the first of these that the chip has.
WIDER_UNITS: dict[str, tuple[str, ...]] = {
    "matmul.float4": ("matmul.float8", "matmul.bfloat16", "matmul.float16", "matmul.float32"),
    "matmul.float8": ("matmul.bfloat16", "matmul.float16", "matmul.float32"),
    "matmul.int8": ("matmul.bfloat16", "matmul.float16", "matmul.float32"),
    "matmul.bfloat16": ("matmul.float16", "matmul.float32"),
    "matmul.float16": ("matmul.bfloat16", "matmul.float32"),
}
_NARROW = ("matmul.float8", "matmul.float4", "matmul.int8")


def sustained_share(vendor: str, unit: str) -> float:
    """Share of the printed matrix rate that large products keep over a long run.

    NVIDIA, 16 bit: 0.71 (H200 at its power limit, measured by this project) to 0.87 (A100, public
    sweeps). Types of 8 and 4 bits reach the power limit sooner: 0.62 (transformer_engine's
    published fp8 sweeps on H100, 1200 to 1300 of 1979). AMD: 668 of 1307 on MI300X. TPUs do not
    throttle: the scaling book reports about 0.9 and more for large XLA products.
    """
    if vendor == "google":
        return 0.90
    if vendor == "aws":
        return 0.85
    if vendor == "amd":
        return 0.51
    return 0.62 if unit in _NARROW else 0.78


def power_share(power: float) -> float:
    """Matrix rate at a share of the usual power limit: dynamic power grows with the cube of the
    clock, and a part is static, so the rate falls by about the square root."""
    return math.sqrt(power)


# ---- products ----------------------------------------------------------------------------------

# Side of the output tiles of large products in cuBLAS and CUTLASS (public A100 and H100 runs).
GPU_TILE = 128
# Side of the matrix unit: operands are padded to it (scaling book: 128 up to v5p, 256 from v6e).
TPU_TILE, TPU_WIDE_TILE = 128, 256
# Share of the rate if rows of a 16-bit array do not begin at a multiple of 8 elements (16 bytes),
# by the number of elements they are a multiple of (H200, measured by this project: 125, 250 and 255
# of 730 TFLOP/s; from 8 elements on 700 to 770).
ALIGNED = 8
NARROW_LOAD_SHARE = {1: 0.17, 2: 0.35, 4: 0.35}
# Vocabularies and their shards are padded to a multiple of this (Megatron's default).
PADDED = 128
# Share of a sweep's best rate that the products of a training step reach: cold operands, other work
# in between, shapes that the library's heuristics miss. The sustained share of narrow types above
# comes from whole layers and needs no further factor. FITTED.
SERIES_SHARE = {"wide": 0.80, "narrow": 1.0, "tuned": 0.92}


def series_share(unit: str, *, tuned: bool = False) -> float:
    """Share of the best rate of a sweep that a step's products reach.

    `tuned` programs choose each product's kernel by trial and fuse the operators beside it
    (Transformer Engine in Megatron).
    """
    if tuned and unit not in _NARROW:
        return SERIES_SHARE["tuned"]
    return SERIES_SHARE["narrow" if unit in _NARROW else "wide"]


# Products of many experts on a TPU against one large product: padded groups, sorted rows (megablox
# kernels, range 0.4 to 0.9). FITTED.
TPU_GROUPED_SHARE = 0.40

# A kernel's fixed device time: launch gap of 1.2-1.6 us (measured by this project) and its ramp.
KERNEL_FIXED_NS = 2_500.0
# A replayed graph or an XLA program: 0.4-1.0 us between kernels (measured by this project).
COMPILED_KERNEL_FIXED_NS = 1_000.0

# ---- attention ---------------------------------------------------------------------------------

# Share of the sustained matrix rate that fused attention reaches, forward and backward.
# FlashAttention-2 paper: A100 forward 0.73, backward 0.62 of 312 TFLOP/s, H100 0.36 and 0.31 of
# 989 (0.40 of the sustained rate); FlashAttention-3 paper: H100 0.66 and 0.55; H200 with torch
# 2.11, measured by this project: 341 and 330 of 700 TFLOP/s. FITTED within that range.
ATTENTION_SHARE = 0.40
# TPUs: splash attention in XLA (MaxText logs; no published curve). FITTED.
TPU_ATTENTION_SHARE = 0.55
# Passes over the [heads, sequence, sequence] scores if attention is not fused: scale and mask,
# softmax, dropout, each written and read (Korthikanti 2022, section 4: 5 a s^2 b bytes kept).
SCORE_PASSES = 5
# The same for a framework's separate operators under autocast, where the softmax is in 32 bits: 18
# by counting forward; H200, measured by this project as the time that fused attention saves on
# BERT, GPT-2 and a small Llama: 49 to 59 in both directions together.
EAGER_SCORE_PASSES = 25

# ---- memory ------------------------------------------------------------------------------------

# Share of the printed bandwidth: a copy reaches 0.89 (H200, measured by this project), fused
# pointwise and norm kernels 0.75 of that (0.65 to 0.85), weights streamed in decode 0.82 (range
# 0.7 to 0.9, FITTED).
POINTWISE_MEMORY_SHARE = 0.72
STREAM_MEMORY_SHARE = 0.82

# Passes over memory beyond the compulsory bytes of the fused operators: operators that a framework
# does not fuse, casts, dropout, copies (BERT-large eager, measured by this project: 57% of device
# time is elementwise and copies). FITTED, range 1 to 3.
PASSES = 1.7
# Logits are kept in 16 bits and, for the loss and its gradient, in 32.
LOGIT_BYTES = 8.0
# CUDA context, communication buffers, workspaces (range 2 to 6 GB).
FRAMEWORK_BYTES = 3e9

# ---- host --------------------------------------------------------------------------------------

# Host time for one of the operators above in an eager training framework: it issues two to three
# kernels with their views and bookkeeping, at 21-30 us each with autograd (measured by this
# project; 8.5 us for a bare add). XLA programs are issued as a whole. FITTED.
EAGER_KERNEL_HOST_NS = 70_000.0
# Once per step: gradient norm, learning rate, loss read back, data (range 5 to 30 ms). FITTED.
STEP_FIXED_NS = 5e6
COMPILED_STEP_FIXED_NS = 2e6

# ---- collectives -------------------------------------------------------------------------------

# Share of the link rate that large messages reach (collectives_measured.csv: H100 all-gather 362
# of 450 GB/s, A100 235 of 300, B200 673 of 900, MI300X 315 of 448). PCIe slots share
# switches and sockets.
LINK_SHARE = {"switch": 0.80, "pcie": 0.50, "mesh": 0.70, "torus": 0.95}
# An all-reduce summed by an NVLink switch moves V up and down at 1.2 W together, for any number of
# chips (H100, H200 258 to 275 of 450 GB/s, B200 479 of 900). NCCL: above four chips.
SWITCH_REDUCE_SHARE, SWITCH_REDUCE_ABOVE = 1.2, 4
# Share of the NICs' rate (H100 320 of 400 with 8 a node, 98 of 100 with two; A100 178 of 200).
EGRESS_SHARE = 0.85
# The same for one chip that sends to one other: few channels for a peer (H100, nccl-tests sendrecv
# between 10 nodes: 25 of 50 GB/s with one, two or four chips a node, 15 with eight).
SEND_EGRESS_SHARE = 0.5
# Start of a collective: its launch, and the wait of its chips for each other (32 kB summed in a
# node: 40 to 48 us on A100, H200 and B200, 1 kB 14 us on MI300X). FITTED.
COLLECTIVE_START_NS = 35_000.0


class Protocol(NamedTuple):
    """Latency of one step inside a domain and between two, and the share of the links' rate."""

    inside_ns: float
    between_ns: float
    share: float


# For large and for small messages (the same table: "simple" and "LL", which is 1.8 times slower
# inside a domain when there are several). A step of a tree sends a chunk; with its small-message
# protocol the error of collectives_measured.csv grew from 50 to 63%.
RING_PROTOCOLS = (Protocol(3_400.0, 9_600.0, 1.0), Protocol(850.0, 2_700.0, 0.25))
TREE_PROTOCOL = Protocol(28_000.0, 50_000.0, 1.0)
# A hop on a TPU torus (scaling book).
HOP_NS = 1_000.0
# Small all-reduces of a decode step, with their kernels' waiting for each other (range 8 to 30 us).
# FITTED.
SMALL_COLLECTIVE_NS = 20_000.0
# The same over PCIe, through host memory (range 20 to 90 us). FITTED.
PCIE_SMALL_COLLECTIVE_NS = 55_000.0

# ---- serving -----------------------------------------------------------------------------------

# Elements that share a scale in int4 weights (AWQ, GPTQ, gpt-fast: 128 or 32).
INT4_GROUP = 128
# NVFP4: one 8-bit scale for 16 weights, as the group that two 16-bit scales would give.
NVFP4_GROUP = 64
# Operators of a layer in decode besides its products and attention: norms, rotation, sums.
DECODE_KERNELS = 6
# Each of them, in a replayed graph or a compiled engine.
DECODE_KERNEL_NS = 2_500.0
# Once per token: sampling, bookkeeping of the engine (range 0.1 to 2 ms). FITTED.
DECODE_FIXED_NS = 600_000.0
# vLLM before it captured graphs (2023): eager operators, one process per chip. FITTED.
VLLM_2023_HOST_NS = 85_000.0
# The most that the matrix-vector kernels of an engine read, on any chip: too few bytes in flight
# for HBM (llama.cpp of May 2024: 0.9 TB/s on A100, 1.15 on H100 PCIe). FITTED.
ENGINE_STREAM_BYTES_PER_S = {"llama.cpp": 1.05e12}
# Vector operations to unpack and scale one weight of 8 or 4 bits (range 2 to 8). FITTED.
UNPACK_FLOPS = 3.5
# The most sequences that servers batch, and the share of memory they fill.
LARGEST_BATCH, SERVE_MEMORY_SHARE = 512, 0.9

# ---- overlap -----------------------------------------------------------------------------------

# Tensor-parallel collectives split into parts that run beside their products (NVIDIA userbuffers).
TENSOR_HIDDEN_SHARE = 0.6

# ---- uncertainty -------------------------------------------------------------------------------

# Both ends of the range are widened by the spread of the efficiencies above. FITTED for coverage.
STEP_UNCERTAINTY = 0.17
# The same with experts, whose sorting and uneven groups differ by release (one layout in releases
# of Megatron-Bridge: 6.4 to 11 s). FITTED for coverage.
EXPERTS_UNCERTAINTY = 0.30
# The same for a step of decoding. FITTED for coverage.
SERVE_UNCERTAINTY = 0.22
# Throughput and first tokens of a server depend on its batching and queue as well. FITTED.
SERVER_UNCERTAINTY = 0.42
# Memory: additional memory of frameworks differs by release (BLOOM's own table: 44 and 67 GB of the
# same layout a day apart).
MEMORY_UNCERTAINTY = 0.26
# For one collective: libraries, switches and NICs differ (collectives_measured.csv).
COLLECTIVE_UNCERTAINTY = 0.35
