"""Code that a compiler generates, where it was not measured."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

_ON_A_GPU = "Measured on one data-center GPU in float32 kernels of torch 2.11; range assumed."
_ON_A_CPU = (
    "Measured on a CPU, 2 to 64 parameters, in launches of an eager backward; range assumed."
)

GELU_FLOPS = Assumption(
    value=72.0,
    low=36.0,
    high=144.0,
    unit="FLOPs",
    meaning="Arithmetic of a GELU per element.",
    source=_ON_A_GPU,
)
GELU_BACKWARD_FLOPS = Assumption(
    value=106.0,
    low=53.0,
    high=212.0,
    unit="FLOPs",
    meaning="Arithmetic of the backward of a GELU per element.",
    source=_ON_A_GPU,
)
TANH_GELU_FLOPS = Assumption(
    value=47.0,
    low=23.5,
    high=94.0,
    unit="FLOPs",
    meaning="Arithmetic of a GELU approximated with tanh per element.",
    source=_ON_A_GPU,
)
TANH_GELU_BACKWARD_FLOPS = Assumption(
    value=75.0,
    low=37.5,
    high=150.0,
    unit="FLOPs",
    meaning="Arithmetic of the backward of a GELU approximated with tanh per element.",
    source=_ON_A_GPU,
)
SILU_FLOPS = Assumption(
    value=39.0,
    low=19.5,
    high=78.0,
    unit="FLOPs",
    meaning="Arithmetic of a SiLU per element.",
    source=_ON_A_GPU,
)
SILU_BACKWARD_FLOPS = Assumption(
    value=48.0,
    low=24.0,
    high=96.0,
    unit="FLOPs",
    meaning="Arithmetic of the backward of a SiLU per element.",
    source=_ON_A_GPU,
)
SIGMOID_FLOPS = Assumption(
    value=32.0,
    low=16.0,
    high=64.0,
    unit="FLOPs",
    meaning="Arithmetic of a sigmoid per element.",
    source=_ON_A_GPU,
)
TANH_FLOPS = Assumption(
    value=26.0,
    low=13.0,
    high=52.0,
    unit="FLOPs",
    meaning="Arithmetic of a tanh per element.",
    source=_ON_A_GPU,
)
EXP_FLOPS = Assumption(
    value=19.0,
    low=9.5,
    high=38.0,
    unit="FLOPs",
    meaning="Arithmetic of an exponential per element.",
    source=_ON_A_GPU,
)
ENTRY_LAUNCHES = Assumption(
    value=25.0,
    low=10.0,
    high=50.0,
    unit="launches",
    meaning="Host time to enter a compiled forward or backward: guards, saved tensors.",
    source=_ON_A_CPU,
)
FORWARD_PARAMETER_LAUNCHES = Assumption(
    value=0.3,
    low=0.1,
    high=0.6,
    unit="launches",
    meaning="Host time added to a compiled forward by each parameter.",
    source=_ON_A_CPU,
)
BACKWARD_PARAMETER_LAUNCHES = Assumption(
    value=0.9,
    low=0.3,
    high=1.5,
    unit="launches",
    meaning="Host time added to a compiled backward by each returned gradient.",
    source=_ON_A_CPU,
)
