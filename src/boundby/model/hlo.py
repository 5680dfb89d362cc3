"""Instructions of an XLA program: the attributes that determine their cost."""

from __future__ import annotations

import re

from boundby.model.record import Record
from boundby.model.tensor import Tensor

_PYTHON_CALLBACK = re.compile(r"python.*callback", re.IGNORECASE)


class Window(Record, frozen=True, kw_only=True):
    """One spatial dimension of the window of a convolution or a windowed reduction."""

    size: int
    stride: int = 1
    padding_low: int = 0
    dilation: int = 1
    base_dilation: int = 1


class ConvolutionDimensions(Record, frozen=True, kw_only=True):
    """The dimensions of input, kernel and output that the cost of a convolution depends on."""

    input_spatial: tuple[int, ...]
    kernel_input: int
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


class HloInstruction(Record, frozen=True, kw_only=True):
    """One instruction.

    `results` are the leaves of its result. `operands` are positions in its computation; for a
    top-level instruction (an operator call) the position of the first equal one among its own
    operands. `inputs` are then the leaves of each. `called` are the computations that it calls: the
    fused one, the body of a loop, the branches of a conditional.
    """

    name: str
    opcode: str
    results: tuple[Tensor, ...] = ()
    operands: tuple[int, ...] = ()
    inputs: tuple[tuple[Tensor, ...], ...] = ()
    called: tuple[HloComputation, ...] = ()
    parameter: int | None = None  # of a parameter: its number
    element: int | None = None  # of get-tuple-element: which
    contracting: tuple[int, ...] | None = None  # dimensions of the left side of a product
    batch: tuple[int, ...] | None = None  # of an attention: dimensions of batch and heads
    exact: bool = False  # a product that must not be computed in a narrower dtype
    window: tuple[Window, ...] = ()
    convolution: ConvolutionDimensions | None = None
    target: str = ""  # of a custom call
    causal: bool = False  # of an attention that skips the half above the diagonal
    trip_count: int | None = None  # of a loop; None if unknown
    copies_argument: bool = False  # a copy of an argument of the program, made to be changed
    # Brings an argument, or one that was updated in part, into another order in memory.
    transposes_argument: bool = False
    reshards: bool = False  # a collective of the partitioner's that changes how an array is divided

    @property
    def calls_python(self) -> bool:
        """Whether it runs a Python function on the host and waits for it."""
        return _PYTHON_CALLBACK.search(self.target) is not None


class HloComputation(Record, frozen=True, kw_only=True):
    """Instructions in order, operands before their users; `root` is the position of the result."""

    instructions: tuple[HloInstruction, ...]
    root: int
