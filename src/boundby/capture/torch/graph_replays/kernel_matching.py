"""Which kernels an operator may have launched, by the names of both.

Nothing here is certain of itself: a kernel's name tells a family, sometimes the very operator.
The order of a whole graph decides among those that could be.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

# How well a kernel and an operator go together.
STRANGERS = 0.0
ALIKE = 1.0  # both elementwise, say
KIN = 3.0  # the kernel's name tells the operator
NAMED = 4.0  # the operator's name is in the kernel's
SAME = 6.0  # the kernel is called what the operator is


class _Family(NamedTuple):
    kernel: re.Pattern[str]
    operator: re.Pattern[str]


def _family(kernel: str, operator: str) -> _Family:
    return _Family(re.compile(kernel, re.IGNORECASE), re.compile(rf"^\w+::(?:{operator})_?$"))


# The first family that a kernel's name fits is its only one.
_FAMILIES = (
    _family(
        r"flash\w*(?:bwd|bprop)|fmha\w*(?:backward|bwd|dgrad)|sdpa\w*(?:backward|bwd)|AttentionBackward"
        r"|bwd\w*(?:flash|fmha|attn)|attn\w*bwd|compute_dot_do_o|convert_dq|dot_do_o",
        r"\w*attention\w*backward\w*|\w*flash\w*(?:bwd|backward)\w*",
    ),
    _family(
        r"flash|fmha|sdpa|unpack_cudnn|AttentionKernel|attn_fwd|paged_attention",
        r"(?!\w*backward)\w*(?:attention|flash|attn)\w*",
    ),
    _family(
        r"layer_?norm\w*(?:grad|backward)|GammaBeta|ComputeGradientFusedParams|InternalGradients",
        r"(?:native_layer_norm|_fused_rms_norm|native_group_norm)_backward",
    ),
    _family(
        r"layer_?norm|rowwise_?moments|rms_?norm|group_?norm|ComputeFusedParams",
        r"native_layer_norm|_fused_rms_norm|native_group_norm|\w*rms_norm",
    ),
    _family(
        r"(?:batch_norm|bn)_?(?:bw|backward)",
        r"(?:cudnn|native|miopen)_batch_norm_backward|batch_norm_backward\w*",
    ),
    _family(
        r"batch_norm|bn_fw|bn_[a-z]*fwd",
        r"(?:cudnn|miopen)_batch_norm|_?native_batch_norm\w*|_batch_norm_with_update\w*"
        r"|batch_norm_\w+",
    ),
    _family(
        r"softmax\w*backward",
        r"_(?:log_)?softmax_backward_data|_masked_softmax_backward",
    ),
    _family(r"softmax", r"_(?:log_)?softmax|_masked_softmax|_safe_softmax"),
    _family(r"nll_loss\w*backward", r"nll_loss(?:2d)?_backward"),
    _family(r"nll_loss", r"nll_loss(?:2d)?_forward"),
    _family(
        r"nvjet|gemm|gemv|splitk|xmma|cutlass|cublas|s\d+gemm|ampere_\w+_nn|dot_kernel|reduce_1Block"
        r"|convol|conv2d|conv_depthwise|fprop|dgrad|wgrad|winograd|implicit|nchwToNhwc|nhwcToNchw"
        r"|cudnn|matmul|tensorop|scaled_mm|grouped_mm|^Cijk_|batched_transpose|transpose_[NC]+HW|gridwise"
        r"|miopen|Im2d?2?Col|naive_conv",
        r"mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|linear|matmul|_addmm_activation|_int_mm"
        r"|_scaled_mm\w*|_grouped_mm|_scaled_grouped_mm\w*|cudnn_conv\w*|miopen_conv\w*|convolution\w*"
        r"|_conv\w*|conv_\w+|slow_conv\w*|thnn_conv\w*|_slow_conv\w*|_cudnn_rnn\w*|linear_backward"
        r"|_fp8\w*|\w*_gemm\w*|\w*_mm\w*",
    ),
    _family(
        r"multi_tensor_apply|lpnorm_cleanup|FusedAdam|FusedSgd",
        r"_foreach_\w+|_fused_(?:adam|adamw|sgd|adagrad)|_amp_foreach\w*",
    ),
    _family(r"fused_dropout", r"native_dropout|_fused_dropout"),
    _family(r"masked_scale", r"native_dropout_backward|_masked_scale"),
    _family(r"CatArray", r"cat|_cat|stack|concat\w*"),
    _family(
        r"embedding\w*(?:backward|grad)|compute_grad_weight|krn_partial|sum_and_scatter"
        r"|compute_num_of_partial",
        r"embedding_dense_backward|_embedding_bag\w*backward|index_put|_index_put_impl",
    ),
    _family(
        r"radix|cub::|thrust|bitonic|sort|topk|scan|gatherTopK|DeviceSelect|DeviceReduce|unique",
        r"sort|topk|argsort|unique\w*|_unique\w*|nonzero\w*|cum\w+|_cum\w+|logcumsumexp"
        r"|embedding_dense_backward|index_put|_index_put_impl|multinomial|masked_select|bincount"
        r"|median|kthvalue|msort|randperm|searchsorted|bucketize|histc",
    ),
    _family(
        r"index|gather|scatter|embedding|(?<!vector)take",
        r"index|index_\w+|_index_put_impl|_unsafe_index\w*|gather|scatter\w*|embedding\w*|take"
        r"|_embedding\w*|masked_scatter|_unsafe_masked_index\w*",
    ),
    _family(r"pool", r"\w*pool\w*"),
    _family(r"upsample|interpolat", r"\w*upsample\w*"),
    _family(
        r"reduce_kernel|ReduceOp|WelfordOps|NormTwoOps",
        r"sum|mean|std|var|var_mean|std_mean|prod|max|min|amax|amin|aminmax|argmax|argmin|norm"
        r"|linalg_vector_norm|all|any|logsumexp|nansum|count_nonzero",
    ),
    _family(
        r"distribution|philox|random|bernoulli|normal_",
        r"random|normal|uniform|bernoulli|rand\w*|exponential|geometric|log_normal|cauchy",
    ),
    _family(r"triu|tril", r"tri[ul]"),
    _family(r"Memcpy", r"copy"),
    _family(r"Memset", r"zero|fill"),
)
_ELEMENTWISE = re.compile(r"elementwise|pointwise|unrolled|vectorized|at::native::.*kernel")
# What elementwise operators call their functors, where that is not what they are called.
_FUNCTORS = {
    "copy": r"copy_kernel|LoadWithCast.*direct_copy|float8\w*_copy",
    "add": r"CUDAFunctor\w*_add|Add\w*Functor",
    "sub": r"CUDAFunctor\w*_add|Add\w*Functor|Sub\w*Functor",
    "rsub": r"CUDAFunctor\w*_add|Add\w*Functor|Sub\w*Functor",
    "mul": r"Mul\w*Functor|mul_kernel",
    "div": r"Div\w*Functor|Mul\w*Functor|div_\w*kernel|div_true",
    "fill": r"FillFunctor",
    "zero": r"FillFunctor",
    "where": r"where_kernel",
    "masked_fill": r"masked_fill",
    "relu": r"relu|clamp|threshold",
    "clamp": r"clamp",
    "clamp_min": r"clamp|relu",
    "clamp_max": r"clamp",
    "threshold": r"threshold|clamp|relu",
    "threshold_backward": r"threshold",
    "eq": r"[Cc]ompare",
    "ne": r"[Cc]ompare",
    "lt": r"[Cc]ompare",
    "le": r"[Cc]ompare",
    "gt": r"[Cc]ompare",
    "ge": r"[Cc]ompare",
    "pow": r"pow|square|cube|sqrt|rsqrt|reciprocal",
    "exp": r"exp_kernel",
    "neg": r"neg_kernel",
    "abs": r"abs_kernel|AbsFunctor",
    "arange": r"arange",
    "addcmul": r"addcmul",
    "addcdiv": r"addcdiv",
    "lerp": r"lerp",
}
# The same of those over lists of tensors.
_LISTED = {
    "mul": r"BinaryOp.*multiplies",
    "add": r"BinaryOp.*plus",
    "sub": r"BinaryOp.*(?:minus|plus)",
    "div": r"BinaryOp.*divides",
    "addcmul": r"PointwiseOp.*multiplies",
    "addcdiv": r"PointwiseOp.*divides",
    "norm": r"LpNorm|lpnorm_cleanup|lpmax_cleanup",
    "maximum": r"[Mm]aximum",
    "minimum": r"[Mm]inimum",
    "clamp_min": r"[Mm]aximum",
    "clamp_max": r"[Mm]inimum",
    "copy": r"[Cc]opy|Identity",
    "adam": r"FusedAdam",
    "adamw": r"FusedAdam",
}
_LISTS = re.compile(r"^_(?:foreach|fused)_")
_CLAIMED = re.compile("|".join(_FUNCTORS.values()))
# Views, allocations, and what only calls others: no kernel is theirs.
_IDLE = re.compile(
    r"^\w+::(?:view\w*|as_strided\w*|_?expand\w*|transpose|t|permute|_?reshape\w*|_unsafe_view|select"
    r"|slice|narrow|unsqueeze|squeeze|detach|alias|unbind|split\w*|chunk|tensor_split|_?unsafe_split\w*"
    r"|empty\w*|new_empty\w*|_?resize_\w*|resize_output|resolve_conj|resolve_neg|lift\w*|result_type"
    r"|unflatten|flatten|movedim|moveaxis|swapaxes|diagonal|unfold|_to_copy|to|clone|contiguous|item"
    r"|_local_scalar_dense|is_\w+|size|stride|numel|set_|set_data|requires_grad_|retain_grad|mT|mH"
    r"|numpy_T|real|imag|zeros\w*|ones\w*|full\w*|new_\w+|type_as|_version|is_nonzero|hsplit|vsplit"
    r"|dropout|softmax|log_softmax|layer_norm|linear|matmul|scaled_dot_product_attention|conv[123]d"
    r"|batch_norm|group_norm|cross_entropy_loss|nll_loss|nll_loss_nd|_has_compatible\w*"
    r"|_fused_sdp_choice|record_stream|detach_|broadcast\w*|meshgrid|einsum|pad|unsafe_chunk)$"
)
_ANONYMOUS = "[anonymous namespace]"  # as long as what it stands for
# Shorter names are found in any kernel's.
_TELLING = 6
_FOLLOWING = re.compile(r"split_?k_?reduce|execute_split_k|PostGSU|lpnorm_cleanup", re.IGNORECASE)
_PRODUCT = re.compile(r"^\w+::(?:\w*mm|addbmm|addm?v|mv|v?dot|linear|_addmm_activation)_?$")
_FRAMEWORK = re.compile(r"^(?:autograd|torch)::")
_BACKWARD = re.compile(r"backward|grad|bwd", re.IGNORECASE)


def may_launch(operator: str) -> bool:
    """Whether a kernel could be this one's: an operator's, or one that a compiler calls by name."""
    if "::" not in operator:
        return True
    return not (_FRAMEWORK.match(operator) or _IDLE.match(operator))


def function_of(kernel: str) -> str:
    """A kernel's name without the types of what it is given: those are named for anything."""
    depth = 0
    for position, letter in enumerate(kernel.replace("(anonymous namespace)", _ANONYMOUS)):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return kernel[:position]
    return kernel


@functools.cache
def family_of(kernel: str) -> int | None:
    for number, family in enumerate(_FAMILIES):
        if family.kernel.search(kernel):
            return number
    return None


@functools.cache
def families_of(operator: str) -> frozenset[int]:
    return frozenset(
        number for number, family in enumerate(_FAMILIES) if family.operator.match(operator)
    )


@functools.cache
def kinship(kernel: str, operator: str) -> float:
    """How well the two go together: one of the values above."""
    if "::" not in operator:
        return SAME if kernel == operator else STRANGERS
    if kernel.startswith("triton_"):
        return STRANGERS
    stem = operator.rpartition("::")[2].removesuffix("_")
    family, mine = family_of(kernel), families_of(operator)
    if _LISTS.match(stem):
        return _kinship_of_lists(kernel, _LISTS.sub("", stem)) if family in mine else STRANGERS
    if len(stem) >= _TELLING and _is_named_in(stem, kernel):
        return NAMED
    elementwise = _ELEMENTWISE.search(kernel) is not None
    functor = _FUNCTORS.get(stem)
    if functor is not None and elementwise and re.search(functor, kernel):
        return KIN
    if family in mine:
        return KIN
    if functor is not None or mine:
        return STRANGERS
    if _is_named_in(stem, kernel):
        return KIN
    if family is None and elementwise and not _CLAIMED.search(kernel):
        return ALIKE
    return STRANGERS


def _kinship_of_lists(kernel: str, stem: str) -> float:
    functor = _LISTED.get(stem)
    if functor is not None:
        return KIN if re.search(functor, kernel) else STRANGERS
    return KIN if _is_named_in(stem, kernel) else ALIKE


def follows(kernel: str) -> bool:
    """Whether a kernel only ever finishes what another of the same operator began."""
    return _FOLLOWING.search(kernel) is not None


@functools.cache
def may_repeat(kernel: str, operator: str) -> bool:
    """Whether an operator that has launched may launch this kernel too.

    A product or an elementwise operator is one kernel, but for what finishes it.
    """
    if follows(kernel):
        return True
    stem = operator.rpartition("::")[2].removesuffix("_")
    return "::" in operator and stem not in _FUNCTORS and not _PRODUCT.match(operator)


def is_certain_to_launch(operator: str) -> bool:
    """Whether an operator left without a kernel would be odd: products, attention, norms."""
    return "::" not in operator or bool(families_of(operator) & _LAUNCHING)


_LAUNCHING = frozenset(range(11))  # up to and with the products


def _is_named_in(stem: str, kernel: str) -> bool:
    plain = stem.replace("_", "").lower()
    if len(plain) < 3 or plain not in kernel.replace("_", "").lower():
        return False
    return bool(_BACKWARD.search(kernel)) == bool(_BACKWARD.search(stem))
