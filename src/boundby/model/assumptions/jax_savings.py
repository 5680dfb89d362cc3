"""Savings in JAX programs."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

FUSED_ATTENTION_POINTWISE_LEFT = Assumption(
    value=0.1,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of softmax and mask time left in fused attention (XLA).",
    source="Assumed.",
)
FUSED_ATTENTION_PRODUCTS_LEFT = Assumption(
    value=0.8,
    low=0.6,
    high=1.0,
    unit="share",
    meaning="Share of the products' time left in fused attention (XLA).",
    source="Assumed.",
)
DONATED_PAGES_SHARE = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Share of new pages that donated memory serves for.",
    source="Assumed.",
)
DONATED_UPDATES_SHARE = Assumption(
    value=0.7,
    low=0.6,
    high=0.8,
    unit="share",
    meaning="Share of the time to update a command buffer that donation saves.",
    source="Seen: 0.3 to 0.4 of 1.0 to 1.8 ms were left.",
)
JITTED_CALLS_SHARE = Assumption(
    value=0.95,
    low=0.6,
    high=1.0,
    unit="share",
    meaning="Share of the host time of eager JAX operators that one compiled program saves.",
    source="Measured on a GPT on an H200 whose update was jitted: 72.6 to 11.7 ms, of 58.8 ms of"
    " overhead.",
)
JITTED_CPU_CALLS_SHARE = Assumption(
    value=0.9,
    low=0.4,
    high=1.0,
    unit="share",
    meaning="The same on a CPU, which computes inside of these calls.",
    source="Measured on a small network of flax linen, one core of a Xeon: its update jitted, 19.7"
    " to 1.7 ms, of 18 ms at the line; assumed for large arrays.",
)
COMPILATION_CACHE_SHARE = Assumption(
    value=0.85,
    low=0.5,
    high=0.95,
    unit="share",
    meaning="Share of compilation time that the persistent cache saves.",
    source="Assumed.",
)
FEW_LEAVES_SHARE = Assumption(
    value=0.6,
    low=0.3,
    high=0.9,
    unit="share",
    meaning="Share of the call's host time that few large arrays save.",
    source="Assumed.",
)
WRAPPED_CALL_SHARE = Assumption(
    value=0.85,
    low=0.4,
    high=1.0,
    unit="share",
    meaning=(
        "Share of the host time around a compiled function, in a library's wrapper, that splitting "
        "the state once saves."
    ),
    source="Assumed.",
)
DEBUG_CHECKS_SHARE = Assumption(
    value=0.6,
    low=0.1,
    high=1.0,
    unit="share",
    meaning="Share of the overhead of checked calls that switching NaN checks off saves.",
    source="Assumed.",
)
CALLBACK_LEFT = Assumption(
    value=0.05,
    low=0.0,
    high=0.4,
    unit="share",
    meaning="Share of a callback left if the device computes its value: copies of scalars.",
    source="Assumed.",
)
CALLBACK_DISPATCH_SHARE = Assumption(
    value=0.65,
    low=0.3,
    high=0.75,
    unit="share",
    meaning=(
        "Share of the host time of a call saved when its program calls no Python: such programs are"
        " not called on JAX's fast path."
    ),
    source="Measured on one core of a Xeon, jax 0.10: 521 us with a callback, 641 us with a print,"
    " 164 us without.",
)
TRANSFERS_SHARE = Assumption(
    value=0.9,
    low=0.5,
    high=1.0,
    unit="share",
    meaning="Share of the copies of arguments saved by keeping them on the device.",
    source="Assumed.",
)
BATCHED_SAMPLES_LEFT = Assumption(
    value=0.25,
    low=0.05,
    high=0.7,
    unit="share",
    meaning="Share of the small operators of a loop over samples left when they are one.",
    source="Assumed.",
)
DONATED_COPIES_LEFT = Assumption(
    value=0.05,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the copies of state left with donation: other uses of the old array may need one."
    ),
    source="Assumed.",
)
TRANSPOSED_ARGUMENTS_LEFT = Assumption(
    value=0.05,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the transposition of arguments left if they are kept in the other order: other "
        "operators may need the old one."
    ),
    source="Seen: none was left in a decoder whose caches were kept as its products read them;"
    " assumed elsewhere.",
)
REMATERIALISED_LEFT = Assumption(
    value=0.15,
    low=0.0,
    high=0.6,
    unit="share",
    meaning="Share of recomputation left; in the worst case only products are saved.",
    source="Assumed.",
)
SCANNED_COMPILATION_SHARE = Assumption(
    value=0.6,
    low=0.3,
    high=0.9,
    unit="share",
    meaning="Share of the compile time of repeated iterations that a scan saves.",
    source="Assumed.",
)
RESHARDING_LEFT = Assumption(
    value=0.2,
    low=0.0,
    high=0.8,
    unit="share",
    meaning="Share of the time of resharding collectives that another layout leaves: it may need"
    " collectives of its own.",
    source="Assumed.",
)
