"""Operators without work: views, allocations, bookkeeping. Their cost is zero, not unknown."""

from __future__ import annotations

from boundby.model import Cost, OpCall
from boundby.ops.registry import aten, formula

NAMES = aten(
    """
alias as_strided as_strided_ adjoint atleast_1d atleast_2d atleast_3d broadcast_tensors
broadcast_to chunk conj _conj data detach detach_ diagonal dsplit empty empty_like
empty_permuted empty_quantized empty_strided expand expand_as _fw_primal hsplit imag lift
lift_fresh mH mT matrix_H movedim moveaxis narrow _neg_view new_empty new_empty_strided numpy_T
permute positive real _reshape_alias requires_grad_ resize_ resize_as_ resolve_conj resolve_neg
result_type rename rename_ retain_grad select set_ set_data slice split split_with_sizes squeeze
squeeze_ swapaxes swapdims t t_ tensor_split transpose transpose_ unbind unfold unflatten
_unsafe_view unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as
view_as_complex view_as_real vsplit _version is_nonzero is_same_size is_pinned is_leaf numel
size stride dim sym_size sym_stride sym_numel sym_storage_offset
_has_compatible_shallow_copy_type _fused_sdp_choice _assert_tensor_metadata
_cudnn_init_dropout_state can_cast is_floating_point is_complex is_set_to record_stream
_resize_output_ output_nr _use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight _nnpack_available
cudnn_is_acceptable promote_types meshgrid _mkldnn_reshape _mkldnn_transpose storage_offset
ravel dropout feature_dropout alpha_dropout to reshape reshape_as flatten contiguous type_as
"""
)


@formula(*NAMES, op_class="movement")
def nothing(_: OpCall) -> Cost:
    """Returns a cost of zero."""
    return Cost()
