"""How exactly a step must be explained for its verdict."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

TIE = Assumption(
    value=0.05,
    low=0.02,
    high=0.1,
    unit="share",
    meaning="Speed-ups closer to each other than this are a tie.",
    source="Assumed.",
)
UNCERTAIN = Assumption(
    value=0.10,
    low=0.05,
    high=0.2,
    unit="share",
    meaning=(
        "A simulation that misses the clean step by more than this makes the verdict uncertain."
    ),
    source="Assumed.",
)
MOSTLY_UNKNOWN = Assumption(
    value=0.5,
    low=0.3,
    high=0.7,
    unit="share",
    meaning="With more unattributed time than this there is no verdict.",
    source="Assumed.",
)
DILATED = Assumption(
    value=1.05,
    low=1.02,
    high=1.2,
    unit="times",
    meaning="A profiled step this much longer than a clean one says little about its idle time.",
    source="Assumed.",
)
EXPLAINED = Assumption(
    value=0.05,
    low=0.02,
    high=0.1,
    unit="share",
    meaning="With less of a step unexplained than this, its simulation stands for it.",
    source="Assumed.",
)
DEVICE_LIMITED = Assumption(
    value=0.92,
    low=0.85,
    high=0.98,
    unit="share",
    meaning=(
        "A step whose simulation without host time takes this share of it is limited by the device."
    ),
    source="Assumed.",
)
COSTED = Assumption(
    value=0.95,
    low=0.8,
    high=1.0,
    unit="share",
    meaning="With less of the products' time costed than this, MFU is a lower bound.",
    source="Assumed.",
)
UNEVEN_STEPS = Assumption(
    value=1.5,
    low=1.2,
    high=2.0,
    unit="times",
    meaning="Clean steps that differ by more than this are reported as unsteady.",
    source="Assumed.",
)
FASTER_PROFILED = Assumption(
    value=0.8,
    low=0.7,
    high=0.95,
    unit="share",
    meaning="A profiled step below this share of the clean ones means that those were disturbed.",
    source="Assumed.",
)
SCALED_WORK = Assumption(
    value=1.2,
    low=1.1,
    high=1.5,
    unit="times",
    meaning="Work that is scaled down by more than this was not the clean step's.",
    source="Assumed.",
)
DISTURBED_CPU = Assumption(
    value=1.25,
    low=1.1,
    high=1.5,
    unit="times",
    meaning="Most by which clean CPU steps may exceed the profiled one and still be scaled to it.",
    source="Assumed.",
)
PAST_MEMORY_ROOF = Assumption(
    value=1.02,
    low=1.0,
    high=1.1,
    unit="times",
    meaning="An operator past its roof by more than this means a wrong formula or roof.",
    source="Assumed: rounding of durations.",
)
PAST_CACHE_ROOF = Assumption(
    value=1.05,
    low=1.0,
    high=1.2,
    unit="times",
    meaning="The same for a cache.",
    source="Assumed.",
)
ABOVE_ROOFLINE = Assumption(
    value=0.1,
    low=0.05,
    high=0.3,
    unit="share",
    meaning="With more of a trace's operator time above the roofline, its roofs are doubted.",
    source="Assumed; 0 to 0.002 in the traces of docs/figures/traces.md.",
)
BUSY_DEVICE = Assumption(
    value=0.85,
    low=0.7,
    high=0.95,
    unit="share",
    meaning="A step whose device is busy for this share may be near its roofs.",
    source="Assumed.",
)
NEAR_ROOF = Assumption(
    value=0.4,
    low=0.2,
    high=0.6,
    unit="share",
    meaning="... when its roofline minimum is this share of the busy time.",
    source="Seen: 0.49 in a compiled transformer, 0.15 in an eager convolutional network.",
)
WORTH_FIXING = Assumption(
    value=0.05,
    low=0.02,
    high=0.2,
    unit="share",
    meaning="No faster chip is named while a finding saves more than this.",
    source="Assumed.",
)
FASTER_CHIP = Assumption(
    value=0.9,
    low=0.7,
    high=1.0,
    unit="share",
    meaning="Chips on which the step takes more than this share of its time are not named.",
    source="Assumed.",
)
PROCESS_SLOWDOWN = Assumption(
    value=1.085,
    low=1.03,
    high=1.15,
    unit="times",
    meaning="Two processes of one script differ by less than this without a cause.",
    source="Assumed: a standard deviation of 3% each, twice that of the difference.",
)
