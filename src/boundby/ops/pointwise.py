"""Pointwise operators: read the operands, write the result, a few operations per element.

Operations are those of the defining expression, a transcendental function counting as one: a
convention, as for the op classes of the literature. At the bandwidth of any device these counts
stay far below the vector roof; they never set the roofline minimum.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    COMPLEXES,
    FLOATS,
    arithmetic,
    broadcast,
    dense,
    flag,
    integer,
    like,
    moved,
    promote,
    tensor,
)


def _table(operands: int, operations: int, text: str) -> dict[str, tuple[int, int]]:
    return dict.fromkeys(text.split(), (operands, operations))


# name -> the number of leading arguments that are operands (a tensor after them is `out`), and
# operations. A scalar argument among the operands moves no bytes.
PLAIN = {
    **_table(1, 1, "abs absolute neg negative ceil floor round trunc fix frac sign sgn relu relu6"),
    **_table(1, 1, "bitwise_not conj_physical _conj_physical square nan_to_num hardtanh threshold"),
    **_table(1, 2, "leaky_relu hardshrink softshrink deg2rad rad2deg"),
    **_table(1, 3, "elu selu celu hardswish"),
    **_table(1, 5, "gelu silu mish"),
    **_table(2, 1, "sub mul rsub maximum minimum fmax fmin remainder fmod floor_divide multiply"),
    **_table(2, 1, "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"),
    **_table(2, 1, "add subtract copysign nextafter heaviside gcd lcm hypot pow clamp_min"),
    **_table(2, 1, "clamp_max _prelu_kernel _add_relu special_zeta special_xlog1py ldexp"),
    **_table(2, 2, "threshold_backward leaky_relu_backward hardtanh_backward"),
    **_table(2, 2, "native_dropout_backward"),
    **_table(2, 2, "hardshrink_backward softshrink_backward _masked_scale"),
    **_table(2, 4, "sigmoid_backward tanh_backward hardsigmoid_backward hardswish_backward"),
    **_table(2, 5, "softplus_backward log_sigmoid_backward logit_backward"),
    **_table(2, 8, "gelu_backward silu_backward mish_backward"),
    **_table(3, 1, "where masked_fill"),
    **_table(3, 2, "clamp clip addcmul rrelu_with_noise_backward"),
    **_table(3, 3, "addcdiv lerp"),
    **_table(6, 3, "elu_backward"),
}

# The result is a float even for integer operands.
FLOATING = {
    **_table(1, 1, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan"),
    **_table(1, 1, "asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma"),
    **_table(
        1, 1, "digamma i0 angle special_entr special_erfcx special_i0e special_i1 special_i1e"
    ),
    **_table(1, 1, "special_log_ndtr special_ndtri special_airy_ai special_bessel_j0"),
    **_table(
        1, 1, "special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0"
    ),
    **_table(1, 1, "special_modified_bessel_i1 special_modified_bessel_k0"),
    **_table(1, 1, "special_modified_bessel_k1 special_scaled_modified_bessel_k0"),
    **_table(1, 1, "special_scaled_modified_bessel_k1 special_spherical_bessel_j0 mvlgamma"),
    **_table(1, 2, "sinc logit"),
    **_table(1, 3, "sigmoid softplus hardsigmoid"),
    **_table(2, 1, "div true_divide divide atan2 polygamma igamma igammac float_power"),
    **_table(2, 2, "xlogy"),
    **_table(2, 1, "special_chebyshev_polynomial_t special_chebyshev_polynomial_u"),
    **_table(2, 1, "special_chebyshev_polynomial_v special_chebyshev_polynomial_w"),
    **_table(2, 1, "special_hermite_polynomial_h special_hermite_polynomial_he"),
    **_table(2, 1, "special_laguerre_polynomial_l special_legendre_polynomial_p"),
    **_table(2, 1, "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u"),
    **_table(2, 1, "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w"),
    **_table(2, 4, "logaddexp logaddexp2"),
}

# The result is a bool.
COMPARING = {
    **_table(1, 1, "isnan isinf isfinite isneginf isposinf signbit logical_not isreal"),
    **_table(2, 1, "eq ne lt le gt ge logical_and logical_or logical_xor greater less not_equal"),
    **_table(2, 1, "greater_equal less_equal"),
}

_TABLE = PLAIN | FLOATING | COMPARING
# Operations per element of each.
OPERATIONS = {name: operations for name, (_, operations) in _TABLE.items()}


def _inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


@formula(*aten(*(f"{name} {name}_" for name in _TABLE)), op_class="elementwise")
def pointwise(call: OpCall) -> Cost:
    """Operands broadcast against each other; an in-place form reads and writes its first."""
    base = call.name.removeprefix("aten::")
    base = base if base in _TABLE else base.removesuffix("_")
    operands, operations = _TABLE[base]
    return apply(
        call,
        operands,
        operations,
        floating=base in FLOATING,
        comparing=base in COMPARING,
        inplace=_inplace(call.name),
    )


def apply(
    call: OpCall,
    operands: int,
    operations: float,
    *,
    floating: bool = False,
    comparing: bool = False,
    inplace: bool = False,
) -> Cost:
    """The cost of applying an expression to the leading `operands` arguments."""
    inputs = [item for item in call.args[:operands] if isinstance(item, Tensor)]
    dtype = promote(*call.args[:operands])
    if floating and dtype not in FLOATS and dtype not in COMPLEXES:
        dtype = "float32"
    out = dense(broadcast(*(item.shape for item in inputs)), "bool" if comparing else dtype)
    out_argument = next((a for a in call.args[operands:] if isinstance(a, Tensor)), None)
    if inplace:
        out = tensor(call, 0)
    elif out_argument is not None and out_argument.elements == out.elements:
        out = out_argument
    return moved(
        reads=inputs,
        writes=(out,),
        flops=arithmetic(dtype, operations * out.distinct_elements),
        in_place=inplace,
    )


@formula(
    *aten("__and__ __or__ __xor__ __lshift__ __rshift__"),
    *aten("__iand__ __ior__ __ixor__ __ilshift__ __irshift__"),
    op_class="elementwise",
)
def bitwise(call: OpCall) -> Cost:
    """Python's operators; `&=` is in place."""
    return apply(call, 2, 1, inplace=call.name.startswith("aten::__i"))


@formula("aten::glu", op_class="elementwise")
def glu(call: OpCall) -> Cost:
    """One half gates the other."""
    x = tensor(call, 0)
    return moved(
        reads=(x,),
        writes=(dense((x.elements // 2,), x.dtype),),
        flops=arithmetic(x.dtype, 2 * x.elements),
    )


@formula("aten::glu_backward", op_class="elementwise")
def glu_backward(call: OpCall) -> Cost:
    """Gradients of both halves."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(grad, x), writes=(like(x),), flops=arithmetic(x.dtype, 4 * x.elements))


@formula("aten::_prelu_kernel_backward", op_class="elementwise")
def prelu_backward(call: OpCall) -> Cost:
    """Gradients of the input and, unreduced, of the weight."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(
        reads=(grad, x, weight),
        writes=(like(x), like(x)),
        flops=arithmetic(x.dtype, 3 * x.elements),
    )


@formula("aten::log_sigmoid_forward", op_class="elementwise")
def log_sigmoid_forward(call: OpCall) -> Cost:
    """The CPU keeps a buffer for the backward, a GPU does not: only the output is compulsory."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x),), flops=arithmetic(x.dtype, 4 * x.elements))


@formula("aten::rrelu_with_noise", "aten::rrelu_with_noise_", op_class="elementwise")
def rrelu_with_noise(call: OpCall) -> Cost:
    """In training the drawn slopes are written beside the output."""
    x, noise = tensor(call, 0), tensor(call, 1)
    drawn = like(noise) if flag(call, 4) else None
    return moved(reads=(x,), writes=(like(x), drawn), flops=arithmetic(x.dtype, 2 * x.elements))


@formula("aten::equal", op_class="elementwise")
def equal(call: OpCall) -> Cost:
    """Reads both and returns one bool."""
    a, b = tensor(call, 0), tensor(call, 1)
    return moved(reads=(a, b), writes=(dense((), "bool"),), flops=arithmetic(a.dtype, a.elements))


@formula("aten::complex", "aten::polar", op_class="elementwise")
def complex_from_parts(call: OpCall) -> Cost:
    """Two real operands, one complex result."""
    a, b = tensor(call, 0), tensor(call, 1)
    dtype = "complex128" if a.dtype == "float64" else "complex64"
    return moved(reads=(a, b), writes=(dense(broadcast(a.shape, b.shape), dtype),))


@formula("aten::frexp", op_class="elementwise")
def frexp(call: OpCall) -> Cost:
    """Mantissa and exponent."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x), like(x, dtype="int32")))


@formula(
    *aten("native_channel_shuffle tril triu tril_ triu_"),
    op_class="movement",
)
def rearranged(call: OpCall) -> Cost:
    """Writes as many elements as it reads."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x),))


@formula("aten::_amp_update_scale_", op_class="elementwise")
def amp_update_scale(call: OpCall) -> Cost:
    """Three numbers: the scale, its growth counter, the overflow flag."""
    scale, growth, found_inf = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(reads=(scale, growth, found_inf), writes=(scale, growth))


@formula("aten::linspace", "aten::logspace", op_class="elementwise")
def linspace(call: OpCall) -> Cost:
    """The third argument is the number of elements."""
    return moved(writes=(dense((integer(call, 2),), "float32"),))
