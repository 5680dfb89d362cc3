"""Savings of operators and kernels: what remains after a fix, and the error of predictions."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

PROCESSES_DIFFER = Assumption(
    value=0.01,
    low=0.003,
    high=0.017,
    unit="share",
    meaning="By how much a device-bound step differs between processes.",
    source="Measured: five models on one data-center GPU, each in three to five processes.",
)
GRAPH_HOST_LEFT = Assumption(
    value=0.10,
    low=0.03,
    high=0.25,
    unit="share",
    meaning=(
        "Share of host time left beside the replay of a CUDA graph: loop, data, copies of inputs."
    ),
    source="Seen in one graphed step: 0.15, most of it the optimizer's own launches.",
)
GRAPH_LONGEST_GAP_NS = Assumption(
    value=5e6,
    low=2e6,
    high=2e7,
    unit="ns",
    meaning=(
        "Host time before one launch up to which it is Python and the framework preparing that "
        "launch, which a graph saves. The rest of a longer time is loading, compilation or the "
        "script's own work."
    ),
    source="Assumed. In profiled eager steps of five models the longest were 1 to 5 ms.",
)
GRAPH_PIECES_LEFT = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning=(
        "Share of the saving of a whole-step graph that is lost in a step with synchronizations "
        "inside."
    ),
    source="Assumed.",
)
HIDDEN_TRANSFER_SHARE = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Share of a collective that could overlap with compute that does.",
    source="Assumed.",
)
ALLOCATOR_CALLS_LEFT = Assumption(
    value=0.2,
    low=0.0,
    high=0.7,
    unit="share",
    meaning="Share of the allocator's calls left with expandable segments.",
    source="Assumed.",
)
LAYOUT_GAIN = Assumption(
    value=0.4,
    low=0.1,
    high=0.7,
    unit="share",
    meaning=(
        "Share of the convolutions' time above the roofline that another layout saves, where "
        "nothing was timed."
    ),
    source="Assumed.",
)
LAYOUT_BENCHMARK_RATIO = Assumption(
    value=1.0,
    low=0.95,
    high=1.15,
    unit="times",
    meaning="Time in the step relative to the benchmark of the same shapes, convolutions.",
    source="Assumed.",
)
ATTENTION_BENCHMARK_RATIO = Assumption(
    value=1.0,
    low=0.75,
    high=1.3,
    unit="times",
    meaning=(
        "Time in the step relative to the benchmark of the same shapes, attention: masks and "
        "layouts differ."
    ),
    source="Assumed.",
)
RIVAL_KERNEL_GAIN = Assumption(
    value=0.9,
    low=0.5,
    high=1.2,
    unit="times",
    meaning="Share of the benchmarked difference between attention kernels that shows in the step.",
    source="Assumed: alone a kernel finds other caches and clocks.",
)
DROPOUT_BENCHMARK_P = Assumption(
    value=0.1,
    low=0.05,
    high=0.5,
    unit="probability",
    meaning="Dropout probability in benchmarks of attention where the step's is not recorded.",
    source="Assumed: the usual default.",
)
SHORT_MASKS_LEFT = Assumption(
    value=0.4,
    low=0.15,
    high=0.7,
    unit="share",
    meaning=(
        "Share of the time of drawing a dropout mask left with one byte per element, where nothing "
        "was timed."
    ),
    source="Assumed: a quarter of the random words, with a comparison and a cast in addition.",
)
LOGIT_PASSES = Assumption(
    value=5,
    low=3,
    high=7,
    unit="passes",
    meaning="Passes over the logits left in a fused loss.",
    source=(
        "Counted: maximum and sum, picked logit, logits again, gradient; a pass each more or in "
        "the cache at the ends."
    ),
)
LOSS_LAUNCHES_LEFT = Assumption(
    value=0.5,
    low=0.2,
    high=1.0,
    unit="share",
    meaning="Share of the loss's launches left in a fused loss.",
    source="Assumed.",
)
NEXT_CLASS_SHARE = Assumption(
    value=0.25,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Share of the distance to what comparable kernels reach that a slow kernel can gain.",
    source="Assumed.",
)
COMPILED_HOST_SPREAD = Assumption(
    value=0.1,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Range of the host time of a compiled step beside what is modeled.",
    source="Assumed.",
)
COMPILED_PYTHON_SHARE = Assumption(
    value=0.1,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of Python and dispatch time that compiling abandoned code again saves; the backend "
        "`aot_eager` saves none."
    ),
    source="Assumed.",
)
BREAK_CALLS = Assumption(
    value=1.5,
    low=0.5,
    high=4.0,
    unit="calls",
    meaning=(
        "Cost of a graph break in entries of a compiled region: guards alone (low), with the code "
        "between regions, with fusion over the break (high)."
    ),
    source="Assumed.",
)
TABLE_ROW_PASSES = Assumption(
    value=4.0,
    low=1.0,
    high=10.0,
    unit="times",
    meaning="Cost of a used table row with sparse gradients relative to a row of the dense update.",
    source="Assumed: gathered, updated and scattered in separate passes.",
)
TABLE_OPERATORS = Assumption(
    value=60,
    low=17,
    high=160,
    unit="operators",
    meaning="Operators that a sparse update of a table adds.",
    source="Counted: 17 to 160 with the optimizers of torch.",
)
OPTIMIZER_HOST_LEFT = Assumption(
    value=0.25,
    low=0.1,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the optimizer's host time left in a fused optimizer: it visits every parameter."
    ),
    source="Assumed.",
)
OPTIMIZER_CPU_LEFT = Assumption(
    value=0.12,
    low=0.08,
    high=0.3,
    unit="share",
    meaning="The same on a CPU, where the unfused form updates parameters one by one.",
    source="Measured: 1.4 of 8.7 ms left for 120 small parameters, half of it the fused kernel.",
)
FUSED_OPTIMIZER_LAUNCHES = Assumption(
    value=6,
    low=2,
    high=20,
    unit="launches",
    meaning="Launches of a fused optimizer step.",
    source="Seen with fused optimizers of torch.",
)
RECOMPUTED_LAUNCHES_LEFT = Assumption(
    value=0.1,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of the launches of a recomputation that stays without checkpointing.",
    source="Assumed.",
)
ZEROING_LAUNCHES_LEFT = Assumption(
    value=0.15,
    low=0.05,
    high=0.3,
    unit="share",
    meaning=(
        "Share of the host time of zeroing gradients left with `set_to_none=True`: the loop over "
        "parameters."
    ),
    source="Assumed.",
)
GRADIENT_ADDITIONS_LEFT = Assumption(
    value=0.05,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the additions to zeroed gradients left: gradients in another layout are copied."
    ),
    source="Assumed.",
)
ACTIVATION_CASTS = Assumption(
    value=1.5,
    low=1.0,
    high=3.0,
    unit="casts",
    meaning=(
        "Casts of activations around a product under autocast, read in float32 and written in "
        "bfloat16."
    ),
    source="Assumed.",
)
CONVOLUTION_ALGORITHM_GAIN = Assumption(
    value=0.15,
    low=0.0,
    high=0.6,
    unit="share",
    meaning="Share of the convolutions' time above the roofline that cuDNN's benchmark mode saves.",
    source="Assumed.",
)
BATCH_GROWTH = Assumption(
    value=0.5,
    low=-0.5,
    high=1.0,
    unit="share",
    meaning=(
        "Where operators with a larger batch lie between the machine's curves (0) and time "
        "proportional to the batch (1)."
    ),
    source="Measured on three models on two CPU cores: 0.2 to 0.9; not measured on a GPU.",
)
COLUMN_REDUCTION_LAUNCHES = Assumption(
    value=2,
    low=0,
    high=3,
    unit="launches",
    meaning="Launches that a reduction over rows adds to the kernel that uses its result.",
    source=(
        "Seen in compiled steps of torch 2.11 on one data-center GPU: 0 with few rows, 3 with many."
    ),
)
AUTOCAST_PRODUCTS_GAIN = Assumption(
    value=1.0,
    low=0.8,
    high=1.1,
    unit="times",
    meaning="Gain of products under autocast relative to the roofs of both precisions.",
    source="Assumed.",
)
AUTOCAST_TRAFFIC_GAIN = Assumption(
    value=0.7,
    low=0.3,
    high=1.0,
    unit="share",
    meaning="Saved memory traffic relative to activations of half the size.",
    source="Assumed.",
)
WIDE_PRODUCT_RATIO = Assumption(
    value=1.0,
    low=0.9,
    high=1.25,
    unit="times",
    meaning="Time of a float32 product relative to its roofline.",
    source="Assumed.",
)
UNSEEN_PASS_SHARE = Assumption(
    value=0.75,
    low=0.5,
    high=1.0,
    unit="share",
    meaning="Speed of pointwise kernels relative to a copy, in a step without large ones.",
    source="Assumed.",
)
FUSED_CHAIN_AT_BEST = Assumption(
    value=0.5,
    low=0.3,
    high=1.0,
    unit="share",
    meaning="Part of the longest operator of a chain that the fused chain takes at best.",
    source="Assumed: generated code reads and writes half of what that operator does.",
)
PRODUCTS_KEPT_AT_WORST = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Part of recomputed products that is saved at least where free memory is unknown.",
    source="Assumed.",
)
