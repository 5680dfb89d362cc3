"""The behaviour of devices that was not measured, and the shares of their roofs that kernels
reach."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

SHORTEST_KERNEL_NS = Assumption(
    value=1_000.0,
    low=500.0,
    high=3_000.0,
    unit="ns",
    meaning=(
        "Duration of the shortest kernel where the machine was not measured; it decides only which "
        "operators are `small`."
    ),
    source="Seen on one data-center GPU; other accelerators of these years are close.",
)
LAST_LEVEL_BYTES = Assumption(
    value=32 * 1024**2,
    low=4 * 1024**2,
    high=512 * 1024**2,
    unit="bytes",
    meaning="Last-level cache of a CPU whose system does not report one.",
    source="Assumed: a common size of the share of one core complex.",
)
CACHED_BYTES = Assumption(
    value=256e6,
    low=30e6,
    high=512e6,
    unit="bytes",
    meaning=(
        "Operators that touch less may read from a cache, whose bandwidth datasheets do not give."
    ),
    source="Assumed: several times the largest last-level caches that datasheets list.",
)
CACHE_REACH = Assumption(
    value=4,
    low=2,
    high=8,
    unit="times",
    meaning=(
        "An operator that touches more than this many times the last-level cache runs from device "
        "memory."
    ),
    source="Measured on one data-center GPU: in real steps smaller ones found their inputs cached.",
)
KERNEL_GAP_NS = Assumption(
    value=1_100.0,
    low=500.0,
    high=2_500.0,
    unit="ns",
    meaning="Gap between kernels of a backlogged stream where the machine was not measured.",
    source="Seen on data-center GPUs.",
)
GRAPH_GAP_NS = Assumption(
    value=50.0,
    low=0.0,
    high=1_000.0,
    unit="ns",
    meaning="Gap between kernels of a replayed CUDA graph where the machine was not measured.",
    source="Seen between the kernels of layers on one data-center GPU.",
)
LAUNCH_LATENCY_NS = Assumption(
    value=1_000.0,
    low=400.0,
    high=1_700.0,
    unit="ns",
    meaning=(
        "Time from the return of a launch call to the start of its kernel on an idle stream. A "
        "device that lags through the whole step shows its backlog instead."
    ),
    source="Range seen on one data-center GPU.",
)
LONGEST_LATENCY_NS = Assumption(
    value=20_000.0,
    low=5_000.0,
    high=50_000.0,
    unit="ns",
    meaning="A launch latency above this is not a latency but a wait.",
    source="Assumed: ten times the longest latency seen.",
)
LONGEST_GAP_NS = Assumption(
    value=10_000.0,
    low=5_000.0,
    high=50_000.0,
    unit="ns",
    meaning="Gaps above this are not gaps between kernels of a backlogged stream.",
    source="Assumed: ten times the usual gap.",
)
LAUNCH_QUEUE = Assumption(
    value=1024,
    low=512,
    high=2048,
    unit="launches",
    meaning="Launches that the queue holds before a launch call blocks.",
    source="Seen with CUDA drivers; not documented.",
)
STREAM_WAIT_NS = Assumption(
    value=5_000,
    low=2_000,
    high=20_000,
    unit="ns",
    meaning="Work that starts later than this after it was ready has waited for something.",
    source="Assumed: five times the usual launch latency.",
)
SYNC_RETURN_NS = Assumption(
    value=5_000,
    low=2_000,
    high=20_000,
    unit="ns",
    meaning="The host did not wait for work that ends this much later than the synchronization.",
    source="Seen on two data-center GPUs: a synchronization returns 4 us after the work has ended.",
)
SHORT_WAKE_NS = Assumption(
    value=20_000,
    low=5_000,
    high=50_000,
    unit="ns",
    meaning="In so short a time a running thread may begin nothing that a trace shows.",
    source="Assumed.",
)
COLLECTIVE_LATENCY_NS = Assumption(
    value=20_000.0,
    low=5_000.0,
    high=100_000.0,
    unit="ns",
    meaning="Latency of a collective where no shorter one was seen.",
    source="Assumed: usual inside one machine.",
)
LINK_SHARE = Assumption(
    value=0.5,
    low=0.4,
    high=0.9,
    unit="share",
    meaning="Share of the datasheet rate of a link that large messages reach.",
    source="Assumed.",
)
COPY_SHARE_PRINTED = Assumption(
    value=0.8,
    low=0.6,
    high=0.95,
    unit="share",
    meaning="Share of the datasheet rate of the host link that copies of one batch reach.",
    source="Assumed.",
)
COPY_SHARE_MEASURED = Assumption(
    value=0.95,
    low=0.8,
    high=1.0,
    unit="share",
    meaning="Share of the measured rate of the host link that copies of one batch reach.",
    source="Assumed.",
)
FUSED_LOSS_MEMORY_SHARE = Assumption(
    value=0.75,
    low=0.65,
    high=0.85,
    unit="share",
    meaning="Share of the memory roof that fused kernels over logits reach.",
    source="Range seen on one data-center GPU.",
)
FUSED_OPTIMIZER_MEMORY_SHARE = Assumption(
    value=0.72,
    low=0.60,
    high=0.81,
    unit="share",
    meaning="Share of the memory roof that fused optimizers over many tensors reach.",
    source="Range seen on one data-center GPU.",
)
CLASS_MEMORY_SHARE = Assumption(
    value=0.8,
    low=0.65,
    high=0.9,
    unit="share",
    meaning="No kernel class is expected to reach more of its roof than this.",
    source="Measured: the share of the memory roof of fused pointwise kernels on one GPU.",
)
CLASS_PERCENTILE = Assumption(
    value=75,
    low=50,
    high=90,
    unit="percent",
    meaning="The share of a class's time that defines what the class can reach.",
    source="Assumed.",
)
SLOWEST_PASS_SHARE = Assumption(
    value=0.4,
    low=0.2,
    high=0.7,
    unit="share",
    meaning=(
        "Share of the memory roof of single passes over memory that are slower than all kernels of "
        "the step."
    ),
    source="Assumed.",
)
SLOW_GENERATED_SHARE = Assumption(
    value=0.7,
    low=0.5,
    high=0.9,
    unit="share",
    meaning="Share of the rate of a plain copy that slow generated kernels reach.",
    source="Assumed.",
)
RANDOM_INSTRUCTIONS = Assumption(
    value=70,
    low=40,
    high=100,
    unit="instructions",
    meaning=(
        "Integer instructions for a random number in generated code: ten rounds of Philox, "
        "conversion, comparison."
    ),
    source="Counted from the algorithm; a wide product counted twice.",
)
INTEGER_SHARE = Assumption(
    value=0.25,
    low=0.125,
    high=0.5,
    unit="share",
    meaning="Integer instructions per second as a share of the float32 peak FLOPs.",
    source="Assumed: half the lanes of float32, whose multiply-add counts twice.",
)
ATTENTION_MATH_SHARE = Assumption(
    value=0.25,
    low=0.15,
    high=0.33,
    unit="share",
    meaning="Share of the matrix roof that fused attention reaches, forward and backward together.",
    source="Range seen on one data-center GPU.",
)
FLASH_SHARE = Assumption(
    value=0.25,
    low=0.15,
    high=0.7,
    unit="share",
    meaning="Share of the matrix roof that flash attention reaches, where only a trace is known.",
    source="Seen on one data-center GPU.",
)
SLOW_ATTENTION_SHARE = Assumption(
    value=0.12,
    low=0.05,
    high=0.2,
    unit="share",
    meaning=(
        "Attention below this share of the matrix roof is reported where only a trace is known."
    ),
    source="Assumed: half of what flash attention reaches.",
)
WHOLE_TILE_SHARE = Assumption(
    value=0.85,
    low=0.65,
    high=1.0,
    unit="share",
    meaning="Share of the roof that products without partial tiles reach.",
    source="Assumed.",
)
SAME_ROOF_SHARE = Assumption(
    value=0.9,
    low=0.7,
    high=1.0,
    unit="share",
    meaning=(
        "How near a product comes to its new roof in a narrower type, relative to how near it came "
        "to the old one."
    ),
    source="Assumed.",
)
SAME_ROOF_SHARE_XLA = Assumption(
    value=0.85,
    low=0.6,
    high=1.0,
    unit="share",
    meaning="The same for products that XLA compiles.",
    source="Assumed.",
)
SAME_VENDOR_SHARE = Assumption(
    value=0.9,
    low=0.75,
    high=1.0,
    unit="share",
    meaning=(
        "Share of another chip's datasheet rates that the step reaches, relative to the present "
        "chip, same vendor."
    ),
    source="Measured on newer chips of one vendor: 0.80 to 0.87.",
)
OTHER_VENDOR_SHARE = Assumption(
    value=0.7,
    low=0.5,
    high=1.0,
    unit="share",
    meaning="The same for a chip of another vendor.",
    source="Measured on one: about 0.5.",
)
USABLE_MEMORY = Assumption(
    value=0.9,
    low=0.8,
    high=0.97,
    unit="share",
    meaning="Share of device memory that a step may fill; the rest is fragmentation and libraries.",
    source="Assumed.",
)
HOST_MEMORY_SHARE = Assumption(
    value=0.1,
    low=0.05,
    high=0.5,
    unit="share",
    meaning="Activations below this share of a host's memory fit beside everything else.",
    source="Assumed.",
)
