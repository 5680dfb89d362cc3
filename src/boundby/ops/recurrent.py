"""Recurrent layers: every weight matrix is multiplied once with every step of every sequence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.contraction import matrix_flops
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    arithmetic,
    dense,
    flag,
    integer,
    like,
    listed,
    maybe,
    moved,
    product,
    tensor,
)


def _steps(x: Tensor) -> int:
    """Return the steps of all sequences: [T, B, in], [B, T, in], or packed [steps, in]."""
    return product(x.shape[:-1])


def _multiply_adds(x: Tensor, weights: Sequence[Tensor]) -> int:
    return _steps(x) * sum(weight.elements for weight in weights if len(weight.shape) == 2)


def _weights(call: OpCall) -> list[Tensor]:
    """Return the weights in the input's dtype: trace files record no dtype inside lists."""
    dtype = tensor(call, 0).dtype
    return [w if w.dtype else msgspec.structs.replace(w, dtype=dtype) for w in listed(call, 1)]


def _layers(
    x: Tensor, weights: Sequence[Tensor], states: Sequence[Tensor | None], width: int
) -> Cost:
    output = dense((_steps(x), width), x.dtype)
    return moved(
        reads=(x, *weights, *states),
        writes=(output, *states),
        flops=matrix_flops(x.dtype, _multiply_adds(x, weights)),
    )


def _layers_backward(
    x: Tensor,
    weights: Sequence[Tensor],
    states: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
) -> Cost:
    """Two products for each of the forward: the input's gradient and the weight's."""
    return moved(
        reads=(x, *weights, *states, *grads),
        writes=(like(x), *(like(weight) for weight in weights)),
        flops=matrix_flops(x.dtype, 2 * _multiply_adds(x, weights)),
    )


@formula("aten::_cudnn_rnn", op_class="contraction")
def cudnn_rnn(call: OpCall) -> Cost:
    """(input, weights, stride, buffer, hx, cx, mode, hidden, projection, ..., bidirectional)."""
    width = (integer(call, 8) or integer(call, 7)) * (2 if flag(call, 13) else 1)
    states = (maybe(call, 4), maybe(call, 5))
    return _layers(tensor(call, 0), _weights(call), states, width)


@formula("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", op_class="contraction")
def cudnn_rnn_backward(call: OpCall) -> Cost:
    """(input, weights, stride, buffer, hx, cx, output, three gradients, ...)."""
    states = tuple(maybe(call, i) for i in (4, 5, 6))
    grads = tuple(maybe(call, i) for i in (7, 8, 9))
    return _layers_backward(tensor(call, 0), _weights(call), states, grads)


@formula("aten::miopen_rnn", op_class="contraction")
def miopen_rnn(call: OpCall) -> Cost:
    """(input, weights, stride, hx, cx, mode, hidden, ..., bidirectional)."""
    width = integer(call, 6) * (2 if flag(call, 11) else 1)
    states = (maybe(call, 3), maybe(call, 4))
    return _layers(tensor(call, 0), _weights(call), states, width)


@formula("aten::mkldnn_rnn_layer", op_class="contraction")
def mkldnn_rnn_layer(call: OpCall) -> Cost:
    """One layer, one direction: (input, w_ih, w_hh, b_ih, b_hh, hx, cx, ..., hidden at 10)."""
    weights = [tensor(call, i) for i in (1, 2, 3, 4)]
    return _layers(tensor(call, 0), weights, (maybe(call, 5), maybe(call, 6)), integer(call, 10))


@formula("aten::mkldnn_rnn_layer_backward", op_class="contraction")
def mkldnn_rnn_layer_backward(call: OpCall) -> Cost:
    """(input, four weights, hx, cx, output, hy, cy, three gradients, ..., workspace)."""
    weights = [tensor(call, i) for i in (1, 2, 3, 4)]
    states = [maybe(call, i) for i in (5, 6, 7)]
    return _layers_backward(tensor(call, 0), weights, states, [maybe(call, 10)])


@formula("aten::_thnn_fused_lstm_cell", op_class="elementwise")
def lstm_cell(call: OpCall) -> Cost:
    """(input gates, hidden gates, cx, biases) -> hy, cy, and the gates for the backward."""
    gates, hidden, cx = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(
        reads=(gates, hidden, cx, maybe(call, 3), maybe(call, 4)),
        writes=(like(cx), like(cx), like(gates)),
        flops=arithmetic(cx.dtype, 5 * gates.elements),
    )


@formula(
    *aten("_thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward"),
    op_class="elementwise",
)
def lstm_cell_backward(call: OpCall) -> Cost:
    """(grad hy, grad cy, cx, cy, gates) -> gradients of gates and cx."""
    cx, cy, gates = tensor(call, 2), tensor(call, 3), tensor(call, 4)
    return moved(
        reads=(maybe(call, 0), maybe(call, 1), cx, cy, gates),
        writes=(like(gates), like(cx)),
        flops=arithmetic(cx.dtype, 6 * gates.elements),
    )


@formula("aten::_thnn_fused_gru_cell", op_class="elementwise")
def gru_cell(call: OpCall) -> Cost:
    """(input gates, hidden gates, hx, biases) -> hy, and five values per unit for the backward."""
    gates, hidden, hx = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(
        reads=(gates, hidden, hx, maybe(call, 3), maybe(call, 4)),
        writes=(like(hx), dense((5 * hx.elements,), hx.dtype)),
        flops=arithmetic(hx.dtype, 5 * gates.elements),
    )


@formula("aten::_thnn_fused_gru_cell_backward", op_class="elementwise")
def gru_cell_backward(call: OpCall) -> Cost:
    """(grad hy, workspace) -> gradients of both gates and of hx."""
    grad, workspace = tensor(call, 0), tensor(call, 1)
    gates = dense((3 * grad.elements,), grad.dtype)
    return moved(
        reads=(grad, workspace),
        writes=(gates, gates, like(grad)),
        flops=arithmetic(grad.dtype, 6 * gates.elements),
    )
