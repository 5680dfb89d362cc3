"""A sequential Python loop is unrolled into the compiled program.

What it looks for
    Products of equal shape that an XLA program contains many times at one line, each of which needs
    the one before: a Python loop over layers or time steps inside a jitted function, whose program
    took seconds to compile.

Why it costs time
    jax traces the loop's body once per iteration. The time to trace and compile grows with their
    number, in each run and for each new shape.

What to change
    `jax.lax.scan(body, carry, xs)`: over time steps, or over the stacked parameters of equal layers
    (`nn.scan` in flax linen, `nnx.scan` in flax nnx).

When it does not help
    A scan is compiled once but may run slower than unrolled code: a GPT of 12 layers on an H200
    took 17.5 instead of 11.7 ms a step. It pays where compilation is a large part of the run.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.jax_savings import SCANNED_COMPILATION_SHARE
from boundby.model.estimate import Estimate
from boundby.step.jax_programs import compile_ns
from boundby.step.model import StepView

# Less compilation is not worth a change of the code.
_LEAST_NS = 3e9


def detect(step: StepView) -> Detection | None:
    loops = step.observation.repeated if step.observation is not None else []
    chained = [loop for loop in loops if loop.depends]
    if not chained:
        return None
    loop = max(chained, key=lambda loop: loop.count)
    compiled = compile_ns(step, loop.program)
    if compiled < _LEAST_NS:
        return None
    spent = compiled * (1 - 1 / loop.count)
    return Detection.of_run(
        Estimate(
            low=SCANNED_COMPILATION_SHARE.low * spent,
            expected=SCANNED_COMPILATION_SHARE.value * spent,
            high=SCANNED_COMPILATION_SHARE.high * spent,
        ),
        where=[loop.line],
        change="jax.lax.scan(body, carry, xs)  # over time steps, or stacked parameters of layers",
        assumes="the loop is most of what is compiled; a step may take longer with a scan",
        evidence=f"the program contains this product {loop.count} times, each with the result of "
        f"the one before; it took {units.time(compiled)} to compile",
    )


FAULT = Fault(
    id="jax-unrolled-loop",
    title="A Python loop is unrolled into the program",
    kind="tuning",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    combines=False,
    document=__doc__,
    detect=detect,
    relative_to="run",
)
