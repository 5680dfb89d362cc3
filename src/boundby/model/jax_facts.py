"""Facts about a JAX script besides its profile: compiled functions, compilations, settings."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record


class JaxChange(Record, frozen=True, kw_only=True):
    """The earlier and the present kind of a changed argument: "float32[32,128]", or its value."""

    argument: str
    what: Literal["shape", "dtype", "value", "structure", "sharding"]
    before: str = ""
    after: str = ""


class JaxCompilation(Record, frozen=True, kw_only=True):
    """One compilation of a function, after how many steps it happened, and at which line of the
    user's.

    If the function was compiled before: `is_new` tells whether jax was passed another function
    object of the same code, `changes` which arguments differ.
    """

    function: str
    step: int
    ns: float
    is_new: bool = False
    changes: list[JaxChange] = []
    where: str | None = None  # "train.py:99"


class JaxFunction(Record, frozen=True, kw_only=True):
    """A function that the script compiles. `made` is how often it was passed to `jax.jit`,
    `variants` for how many kinds of arguments it was compiled. `library`: the package whose own
    function, around the script's, was passed to it ("flax" for `nnx.jit`)."""

    name: str
    source: str | None = None  # "train.py:42"
    made: int = 1
    variants: int | None = None
    traced_gradient: bool = False
    library: str | None = None
    batch: list[int] = []  # the shape of its batch, if it was looked for
    carries: bool = False  # takes its own results in the next call
    is_fed: bool = False  # gets new arrays of numpy in each call
    samples: int | None = None  # called on one row after the other of an array with so many


class JaxHostArray(Record, frozen=True, kw_only=True):
    """A numpy array among the arguments of the step's function; `bytes`: of what a call copies;
    `is_same`: the same in each call; `copy_ns`: how long its copy took by itself, if it is."""

    argument: str
    bytes: int
    is_same: bool
    copy_ns: float | None = None


class JaxFacts(Record, frozen=True, kw_only=True):
    """`function` is the one whose call ends a step, `checkpoints` the lines that call
    `jax.checkpoint`, `donates` whether it reuses the memory of its
    arguments (None: it carries no state), `leaves` how many arrays it takes, `carried_bytes` the
    size of the state that it returns and takes again."""

    function: JaxFunction | None = None
    functions: list[JaxFunction] = []
    checkpoints: list[str] = []
    donates: bool | None = None
    leaves: int | None = None
    carried_bytes: int | None = None
    host_arrays: list[JaxHostArray] = []
    compilations: list[JaxCompilation] = []
    warmup_steps: int = 0
    matmul_precision: str | None = None
    debug_nans: bool = False
    has_compilation_cache: bool = False
