"""Thresholds: from which value on something counts as a fault."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

FLAT_STEP = Assumption(
    value=1.6,
    low=1.3,
    high=1.8,
    unit="times",
    meaning=(
        "A step that takes less than this with twice the batch is reported as too small a batch."
    ),
    source="Assumed.",
)
FAR_FROM_ROOF = Assumption(
    value=0.4,
    low=0.2,
    high=0.6,
    unit="share",
    meaning="Kernels below this share of their roof are slow.",
    source="Assumed.",
)
SHORTEST_MINIMUM = Assumption(
    value=0.5,
    low=0.2,
    high=2.0,
    unit="kernel starts",
    meaning="A roofline minimum below this many shortest kernels says nothing about a kernel.",
    source="Assumed.",
)
WORKING_KERNEL = Assumption(
    value=4,
    low=2,
    high=10,
    unit="kernel starts",
    meaning="A kernel shorter than this many shortest kernels is mostly start-up.",
    source="Assumed.",
)
SLOW_PRODUCT = Assumption(
    value=0.6,
    low=0.4,
    high=0.8,
    unit="share",
    meaning="Products above this share of their roof handle their shape well.",
    source="Assumed.",
)
AT_ROOF = Assumption(
    value=0.6,
    low=0.5,
    high=0.9,
    unit="share",
    meaning="Operators above this share of their roof have nothing left to tune.",
    source="Assumed.",
)
FASTER_UNIT = Assumption(
    value=1.2,
    low=1.05,
    high=1.5,
    unit="times",
    meaning="A number format must be this many times as fast to be proposed.",
    source="Assumed.",
)
FASTER_KERNEL = Assumption(
    value=0.92,
    low=0.8,
    high=0.97,
    unit="share",
    meaning=(
        "An attention kernel must take less than this share of the present one's time to be "
        "proposed."
    ),
    source="Assumed.",
)
SPECIFIC_FINDINGS = Assumption(
    value=0.5,
    low=0.2,
    high=0.8,
    unit="share",
    meaning="A general finding is dropped when specific ones cover it down to this share.",
    source="Assumed.",
)
USUAL_EVALUATION = Assumption(
    value=0.10,
    low=0.02,
    high=0.2,
    unit="share",
    meaning="Evaluation beside training that is not reported.",
    source="Assumed.",
)
STEPS_AN_EVALUATION = Assumption(
    value=100,
    low=20,
    high=1000,
    unit="steps",
    meaning="Training steps for one evaluation that are enough where it follows every few steps.",
    source="Assumed.",
)
USUAL_CHECKPOINTS = Assumption(
    value=0.01,
    low=0.001,
    high=0.05,
    unit="share",
    meaning="Checkpoints beside training that are not reported.",
    source="Assumed.",
)
USED_ROWS = Assumption(
    value=0.1,
    low=0.01,
    high=0.5,
    unit="share",
    meaning="Tables of which a step uses less than this share are proposed for sparse gradients.",
    source="Assumed.",
)
APPENDED_SHARE = Assumption(
    value=0.1,
    low=0.01,
    high=0.3,
    unit="share",
    meaning="A concatenation that adds less than this share appends to a cache.",
    source="Assumed.",
)
DELEGATED_SHARE = Assumption(
    value=0.5,
    low=0.2,
    high=0.8,
    unit="share",
    meaning=(
        "An operator delegates its work if the operators it calls account for this share of its "
        "FLOPs and bytes."
    ),
    source="Assumed: preparations stay far below, repeated or decomposed operators far above.",
)
SHORT_KERNEL_NS = Assumption(
    value=10_000,
    low=3_000,
    high=30_000,
    unit="ns",
    meaning="A kernel shorter than this takes less time than its launch.",
    source="Assumed.",
)
BLOCKED_LAUNCH = Assumption(
    value=10.0,
    low=5.0,
    high=50.0,
    unit="times",
    meaning=(
        "A launch that takes this many times the median, with work queued, waits for the queue."
    ),
    source="Assumed.",
)
BLOCKED_DEPTH = Assumption(
    value=100,
    low=20,
    high=1000,
    unit="launches",
    meaning="Queued launches from which such a wait is assumed.",
    source="Assumed.",
)
