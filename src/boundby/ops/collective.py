"""Collectives, costed by payload: the bytes this rank sends into and receives from the network.

How often the payload crosses a link depends on the algorithm and the group size; this is taken into
account where the bytes are divided by a link's bandwidth.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import formula
from boundby.ops.traffic import dense, integer, listed, moved, tensor


def _ranges(*names: str) -> list[str]:
    """The names of the ranges that backends mark around a collective: "nccl:all_reduce"."""
    backends = ("nccl", "gloo", "mpi", "xccl")
    return [f"{backend}:{name}" for backend in backends for text in names for name in text.split()]


def _payload(sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> Cost:
    """Return the cost of the payload. The tensors of a list are distinct, so it is no upper
    bound."""
    cost = moved(reads=sent, writes=received)
    return Cost(bytes_read=cost.bytes_read, bytes_written=cost.bytes_written)


@formula(
    "c10d::allreduce_",
    "c10d::allreduce_coalesced_",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_reduce_",
    "_c10d_functional::all_reduce_coalesced",
    "_c10d_functional::all_reduce_coalesced_",
    "symm_mem::multimem_all_reduce_",
    "symm_mem::two_shot_all_reduce_",
    "vllm::all_reduce",
    "vllm::outplace_all_reduce",
    "sglang::inplace_all_reduce",
    "sglang::outplace_all_reduce",
    "symm_mem::one_shot_all_reduce",
    "symm_mem::multimem_one_shot_all_reduce",
    "c10d::broadcast_",
    "_c10d_functional::broadcast",
    "_c10d_functional::broadcast_",
    "c10d::reduce_",
    *_ranges(
        "all_reduce allreduce allreduce_coalesced all_reduce_sparse broadcast reduce all_to_all",
        "_broadcast_oop _reduce_oop",
    ),
    op_class="communication",
)
def all_reduce(call: OpCall) -> Cost:
    """Sends one buffer and receives one of the same size."""
    buffer = listed(call, 0)
    return _payload(buffer, buffer)


@formula(
    "c10d::_allgather_base_",
    "c10d::_reduce_scatter_base_",
    "c10d::alltoall_base_",
    "c10d::alltoall_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "symm_mem::two_shot_all_reduce_out",
    op_class="communication",
)
def output_first(call: OpCall) -> Cost:
    """(output, input, group, ...): both sizes are recorded."""
    return _payload(listed(call, 1), listed(call, 0))


@formula(
    "c10d::allgather_",
    "c10d::allgather_coalesced_",
    "c10d::gather_",
    op_class="communication",
)
def gathered(call: OpCall) -> Cost:
    """(lists of outputs, inputs): lists of lists are not recorded, so the output is unknown.

    The input is a lower bound.
    """
    return _payload(listed(call, 1), ())


@formula("_C_custom_ar::all_reduce", "sgl_kernel::all_reduce", op_class="communication")
def custom_all_reduce(call: OpCall) -> Cost:
    """(handle, input, output, ...): peers' memory is read in place of messages."""
    return _payload((tensor(call, 1),), (tensor(call, 2),))


@formula("c10d::reduce_scatter_", "c10d::scatter_", op_class="communication")
def scattered(call: OpCall) -> Cost:
    """(outputs, lists of inputs): the output is a lower bound."""
    return _payload((), listed(call, 0))


@formula(
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::all_gather_into_tensor_out",
    "_c10d_functional::all_gather_into_tensor_coalesced",
    op_class="communication",
)
def all_gather(call: OpCall) -> Cost:
    """(input, group size): the output has that many pieces."""
    pieces, size = listed(call, 0), integer(call, 1)
    return _payload(pieces, tuple(dense((p.elements * size,), p.dtype) for p in pieces))


@formula(
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::reduce_scatter_tensor_coalesced",
    op_class="communication",
)
def reduce_scatter(call: OpCall) -> Cost:
    """(input, reduction, group size): the output is one of that many pieces."""
    whole, size = listed(call, 0), integer(call, 2)
    return _payload(whole, tuple(dense((p.elements // size,), p.dtype) for p in whole))


@formula("_c10d_functional::all_to_all_single", op_class="communication")
def all_to_all_single(call: OpCall) -> Cost:
    """(input, output splits, input splits): as large as the input unless the splits differ."""
    x = tensor(call, 0)
    return _payload((x,), (x,))


@formula(
    *_ranges(
        "_all_gather_base all_gather _reduce_scatter_base reduce_scatter gather scatter coalesced",
        "all_gather_into_tensor_coalesced reduce_scatter_tensor_coalesced",
    ),
    "c10d::send",
    op_class="communication",
)
def annotated(call: OpCall) -> Cost:
    """The backend's own range: it records the input only."""
    return _payload(listed(call, 0), ())


@formula("c10d::recv_", "c10d::recv_any_source_", op_class="communication")
def received(call: OpCall) -> Cost:
    """Receives only."""
    return _payload((), listed(call, 0))


@formula(
    "c10d::barrier",
    "c10d::monitored_barrier_",
    "_c10d_functional::wait_tensor",
    op_class="communication",
)
def waiting(_: OpCall) -> Cost:
    """No payload."""
    return Cost()
