"""The predicted cost of a step on other hardware: the result of `boundby plan`."""

from __future__ import annotations

from typing import Literal

from boundby.model.estimate import Estimate
from boundby.model.record import SCHEMA, Record

TermKind = Literal["matmul", "attention", "memory", "collective", "bubble", "overhead"]


class PlanTerm(Record, frozen=True, kw_only=True):
    """One part of the step: its whole time, and the part of it that lengthens the step.

    `axis` is the mesh axis of a collective. `formula` names what `plan --explain` prints.
    """

    name: str
    kind: TermKind
    total_ns: float
    exposed_ns: float
    axis: str | None = None
    detail: str = ""
    formula: str = ""


class PlanMemory(Record, frozen=True, kw_only=True):
    """One part of a chip's memory."""

    name: str
    bytes: float


class PlanLimit(Record, frozen=True, kw_only=True):
    """A threshold: where a bound changes. `value` has the unit named beside it."""

    name: str
    value: float
    unit: str
    meaning: str


class PlanRoof(Record, frozen=True, kw_only=True):
    """A bandwidth of the chip, and how many operations the step does per byte moved."""

    name: str
    bytes_per_s: float
    intensity: float | None = None


class PlanResult(Record, frozen=True, kw_only=True):
    """A planned step: time with its range, parts that add up to it, memory, limits.

    `overlapped_ns` is the time with perfect overlap (the largest resource alone), `serial_ns`
    with none (the sum). `step_ns` adds the uncertainty of the efficiencies to both ends.
    `roofs` are memory and networks beside `peak_flops`, `scaling` tokens/s per chip by number of
    chips at the same batch, `formulas` the text of each term's formula.
    """

    schema: int = SCHEMA
    title: str
    chip: str
    chips: int = 1
    mesh: dict[str, int] = {}
    step_ns: Estimate
    overlapped_ns: float
    serial_ns: float
    bound_by: str
    terms: list[PlanTerm] = []
    tokens: float | None = None
    tokens_per_s_per_chip: float | None = None
    model_flops: float | None = None
    hardware_flops: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    mfu_convention: str = ""
    memory: list[PlanMemory] = []
    memory_capacity: float | None = None
    fits: bool | None = None
    limits: list[PlanLimit] = []
    usd_per_million_tokens: float | None = None
    serving: PlanServing | None = None
    peak_flops: float | None = None
    roofs: list[PlanRoof] = []
    scaling: list[tuple[int, float]] = []
    formulas: dict[str, str] = {}
    notes: list[str] = []


class PlanServing(Record, frozen=True, kw_only=True):
    """Prefill and decode of a served model, over all chips of one replica."""

    batch: int
    input_tokens: int
    output_tokens: int
    first_token_ns: Estimate
    per_token_ns: Estimate
    request_ns: Estimate
    output_tokens_per_s: float
    largest_batch: int
    curve: list[tuple[int, float, float]] = []  # batch, ns a token, output tokens/s


class PlanChoice(Record, frozen=True, kw_only=True):
    """One layout of a search, or one point of a sweep, and why it is slower than the best."""

    mesh: dict[str, int]
    chips: int
    micro_batch: float
    recompute: str
    step_ns: Estimate
    mfu: float | None
    memory_bytes: float
    why: str = ""


class PlanSearch(Record, frozen=True, kw_only=True):
    """Layouts, the fastest first, or the points of a sweep in their order.

    `notes` describe the model, and name the numbers of chips that no layout fits.
    """

    schema: int = SCHEMA
    title: str
    chip: str
    kind: Literal["search", "sweep"]
    choices: list[PlanChoice]
    considered: int
    fitting: int
    notes: list[str] = []


class PlanRow(Record, frozen=True, kw_only=True):
    """One row of a table of measurements: predicted and measured in the table's unit.

    Rows of one `group` are the same job; their layouts are ranked against each other. Rows of one
    `kind` are scored together.
    """

    id: str
    source: str
    predicted: Estimate
    measured: float
    unit: str
    group: str = ""
    layout: str = ""
    kind: str = ""


class PlanScore(Record, frozen=True, kw_only=True):
    """How predictions compare with measurements. Errors are shares of the measured value."""

    name: str
    rows: int
    mean_error: float
    bias: float
    coverage: float
    rank_correlation: float | None = None


class PlanTable(Record, frozen=True, kw_only=True):
    """A table of measurements predicted row by row, with the scores by source.

    `memory` are the rows that state the memory of the fullest chip.
    """

    schema: int = SCHEMA
    file: str
    rows: list[PlanRow]
    scores: list[PlanScore]
    memory: list[PlanRow] = []
    memory_scores: list[PlanScore] = []
    skipped: dict[str, int] = {}
