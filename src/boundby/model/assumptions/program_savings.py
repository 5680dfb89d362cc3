"""Savings in the program: loops, data, files, metrics, evaluation, memory of autograd."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

SCRIPT_LEFT = Assumption(
    value=0.5,
    low=0.0,
    high=0.5,
    unit="share",
    meaning="Share of the script's own Python or of a loop over samples that stays, worst case.",
    source="Assumed.",
)
FROZEN_COLLECTOR_LEFT = Assumption(
    value=0.1,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the garbage collector's pauses that is left after `gc.freeze()`: collections of "
        "young objects."
    ),
    source="Assumed.",
)
UNCALLED_COLLECTOR_LEFT = Assumption(
    value=0.0,
    low=0.0,
    high=0.2,
    unit="share",
    meaning="The same after a call of `gc.collect()` in the loop is removed.",
    source="Assumed.",
)
FILE_WRITES_LEFT = Assumption(
    value=0.01,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of file writes left when they are made once in many steps.",
    source="Assumed: every hundredth step.",
)
STATE_COPIES_LEFT = Assumption(
    value=0.01,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of copies of weights left when they are made only to keep the best.",
    source="Assumed: every hundredth step; in three of ten while a loss falls quickly.",
)
HOST_METRICS_LEFT = Assumption(
    value=0.02,
    low=0.0,
    high=0.4,
    unit="share",
    meaning="Share of metrics on the host left when they are computed rarely.",
    source="Assumed: every fiftieth step.",
)
APPENDED_CACHE_LEFT = Assumption(
    value=0.5,
    low=0.0,
    high=0.5,
    unit="share",
    meaning=(
        "Share of the saving of a preallocated cache that attention over its empty part takes "
        "back, worst case."
    ),
    source="Derived: half of the cache is empty on average.",
)
RETAINED_NODE_SHARE = Assumption(
    value=0.6,
    low=0.3,
    high=1.5,
    unit="share",
    meaning=(
        "Cost of a retained autograd node relative to what differentiation adds to an operator."
    ),
    source="Assumed.",
)
ANOMALY_REST = Assumption(
    value=0.3,
    low=0.0,
    high=0.3,
    unit="share",
    meaning=(
        "Cost of anomaly detection besides its checks, as a share of them: it keeps tracebacks."
    ),
    source="Assumed.",
)
RECORDED_EVALUATION = Assumption(
    value=0.15,
    low=0.0,
    high=0.32,
    unit="share",
    meaning="Share of an evaluation that recording gradients takes.",
    source="Measured on six models on one CPU core, with and without in turn: -1% to 32%.",
)
READY_BATCH_LEFT = Assumption(
    value=0.08,
    low=0.01,
    high=0.30,
    unit="share",
    meaning="Share of a batch's time left when a worker has it ready: taking it from a queue.",
    source="Assumed.",
)
PREPARED_BATCH_WORST = Assumption(
    value=0.6,
    low=0.3,
    high=1.0,
    unit="share",
    meaning="The same where the worker takes a core that the step needs.",
    source="Assumed.",
)
MORE_WORKERS_LEFT = Assumption(
    value=0.5,
    low=0.01,
    high=1.0,
    unit="share",
    meaning=(
        "Share of the wait for data left with more workers, or with samples that take half the "
        "time."
    ),
    source="Assumed: how many workers are enough is not known.",
)
PERSISTENT_WORKERS_LEFT = Assumption(
    value=0.25,
    low=0.05,
    high=0.6,
    unit="share",
    meaning=(
        "Share of a start of workers left with persistent workers: they still make the first batch."
    ),
    source="Assumed.",
)
PAGES_KEPT_GAIN = Assumption(
    value=1.0,
    low=0.5,
    high=1.5,
    unit="times",
    meaning="Time saved by keeping memory relative to the page-fault time that was estimated.",
    source="Assumed.",
)
PAGEABLE_COPY_SHARE = Assumption(
    value=0.7,
    low=0.5,
    high=0.9,
    unit="share",
    meaning="Time of a pinned copy relative to the estimate, worst case.",
    source="Assumed.",
)
SETTING_LEFT = Assumption(
    value=0.0,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of the work of a debugging setting left when it is off.",
    source="Assumed.",
)
REPEATED_WORK_LEFT = Assumption(
    value=0.0,
    low=0.0,
    high=0.2,
    unit="share",
    meaning="Share of work left that is done once or not at all: its rows may contain other work.",
    source="Assumed.",
)
REPEATED_CALL_LEFT = Assumption(
    value=0.0,
    low=0.0,
    high=0.1,
    unit="share",
    meaning="The same for a call of a model.",
    source="Assumed.",
)
LOOPED_UPDATES_LEFT = Assumption(
    value=0.0,
    low=0.0,
    high=0.6,
    unit="share",
    meaning="Share of a loop over parameters left beside one call for all of them.",
    source="Assumed.",
)
CUT_WORK_LEFT = Assumption(
    value=0.1,
    low=0.0,
    high=0.5,
    unit="share",
    meaning="Share of work on values that nothing reads left if the input is sliced first.",
    source="Assumed.",
)
LOOKUP_LEFT = Assumption(
    value=0.02,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of products with one-hot rows left for a lookup and its backward.",
    source="Assumed.",
)
UNRECORDED_WORK_SHARE = Assumption(
    value=0.0,
    low=0.0,
    high=0.3,
    unit="share",
    meaning="Share of a forward saved without recording because results stay in a cache.",
    source="Assumed.",
)
VECTORISED_LOOP_LEFT = Assumption(
    value=0.05,
    low=0.01,
    high=0.3,
    unit="share",
    meaning="Share of a Python loop over values left when it is one operator on all of them.",
    source="Assumed.",
)
GROWING_MEMORY_AT_LINES = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Share of the time at the lines that keep memory which is saved when nothing is kept.",
    source="Assumed.",
)
DELAYS_OF_OTHERS_LEFT = Assumption(
    value=0.5,
    low=0.0,
    high=1.0,
    unit="share",
    meaning="Part of the waiting attributed to other processes that spinning does not cause.",
    source="Assumed.",
)
