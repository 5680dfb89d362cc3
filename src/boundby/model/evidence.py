"""Values and autograd facts of a few extra steps, which no profile records.

Lines are as in `Timeline.sources`. `occurrence` counts the calls of modules of one type, at one
line, within a step. `call` names a module's type as the profile does, without its number.
"""

from __future__ import annotations

from boundby.model.record import Record


class ProgramSettings(Record, frozen=True, kw_only=True):
    """Settings of torch or JAX. `anomaly`: whether anomaly detection is on at the end of the run;
    `anomaly_lines`: the lines of backwards that ran with it."""

    anomaly: bool = False
    anomaly_lines: list[str] = []
    deterministic: bool = False
    fills_memory: bool = False  # uninitialised memory is filled, for deterministic results
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    cores: int | None = None
    anomaly_set_at: list[str] = []
    set_at: list[str] = []  # where threads or deterministic algorithms are set
    compiled_at: list[str] = []  # where torch.compile is called
    doubles_at: list[str] = []  # where the text names float64, or takes arrays as they are
    # Assignments that make float64 tensors without reading one; in JAX what switches float64 on.
    doubles_made_at: list[str] = []
    optimizers_made_at: list[str] = []
    trainer: str | None = None  # the package of the training framework that steps the optimizer


class ModuleCall(Record, frozen=True, kw_only=True):
    """A call of a module: the line, and the lines of the user's that led to it."""

    module: str
    occurrence: int
    where: list[str]


class RepeatedCall(Record, frozen=True, kw_only=True):
    """A module called again on the same inputs. `same`: with the same result, which is certainly
    redundant; otherwise the second call was used for no gradient. `updated`: the weights were
    changed in between."""

    call: ModuleCall
    first: ModuleCall
    same: bool
    updated: bool = False
    recorded: bool = False  # autograd recorded the second call


class SingleSamples(Record, frozen=True, kw_only=True):
    """A model that is called on one row of a tensor, or one item of a list, after the other;
    `samples`: how many it has."""

    where: list[str]
    samples: int


class UnreadResult(Record, frozen=True, kw_only=True):
    """A call whose result nothing reads. `changes`: it changed buffers, as running statistics."""

    call: ModuleCall
    changes: bool = False


class GrowingInput(Record, frozen=True, kw_only=True):
    """A model that is called on the input of its last call and one position more, as in generation
    without a cache. `rows`: of the batch; `module`: the model's type."""

    module: str
    where: list[str]
    rows: int


class UnusedGraph(Record, frozen=True, kw_only=True):
    """A call that autograd recorded and that no backward used."""

    call: ModuleCall
    training: bool = False


class UnusedGradients(Record, frozen=True, kw_only=True):
    """A backward that computed gradients which nothing used.

    `nodes` are the autograd nodes that lead only to these gradients, `edges` those that lead to
    them and to gradients in use. Both are positions in the order in which the step's forward
    created its nodes, `total` in number.
    `unowned`: no optimizer has the parameters; otherwise they were cleared before its step.
    `parts`: the modules that they make up, by name, as far as known.
    """

    where: list[str]
    nodes: list[int]
    edges: list[int]
    total: int
    parameters: int
    unowned: bool
    parts: list[str] = []


class KeptGraph(Record, frozen=True, kw_only=True):
    """A backward that kept its graph (`create`: and recorded itself), without a second one."""

    where: list[str]
    create: bool


class RepeatedBackward(Record, frozen=True, kw_only=True):
    """A backward through part of the graph of an earlier one, adding to the same gradients.

    `nodes` are the autograd nodes of both, counted in the order in which the step's forward made
    them, of `total`. `first`: the lines of the earlier one.
    """

    where: list[str]
    first: list[str]
    nodes: list[int]
    total: int


class RebuiltTensor(Record, frozen=True, kw_only=True):
    """A line that makes tensors with the same values in every step. `names`: what it assigns, or
    the function that it is in, where that returns them; `called_at`: what calls that function.
    `once_a_step`: the function makes the same several times in one step, but others in the next."""

    where: str
    names: list[str]
    bytes: float
    times: int
    called_at: str = ""
    once_a_step: bool = False


class Padding(Record, frozen=True, kw_only=True):
    """Rows of a batch that end, or begin, with one repeated value. `lengths` are without it,
    `width` with it."""

    where: list[str]
    width: int
    lengths: list[int]

    @property
    def share(self) -> float:
        return 1 - sum(self.lengths) / (self.width * max(1, len(self.lengths)))

    @property
    def trimmed(self) -> float:
        """The share left when cut to the longest row."""
        return max(self.lengths, default=self.width) / self.width


class Growth(Record, frozen=True, kw_only=True):
    """Autograd nodes that stay alive from step to step: how many more each."""

    where: list[str]
    nodes_per_step: float


class UnclearedSteps(Record, frozen=True, kw_only=True):
    """An optimizer that steps several times on the same accumulated gradients."""

    where: list[str]
    steps_per_clear: float


class StepEvidence(Record, frozen=True, kw_only=True):
    """All evidence; `steps` is the number of observed steps. `fixed_inputs`: the models got the
    same inputs in each of them."""

    steps: int = 0
    settings: ProgramSettings = ProgramSettings()
    repeated: list[RepeatedCall] = []
    unread_results: list[UnreadResult] = []
    growing_input: GrowingInput | None = None
    unused_graphs: list[UnusedGraph] = []
    unused_gradients: list[UnusedGradients] = []
    kept_graphs: list[KeptGraph] = []
    repeated_backwards: list[RepeatedBackward] = []
    single_samples: SingleSamples | None = None
    rebuilt: list[RebuiltTensor] = []
    padding: Padding | None = None
    growth: Growth | None = None
    uncleared: UnclearedSteps | None = None
    has_backward: bool = False
    fixed_inputs: bool = False
