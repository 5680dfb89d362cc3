"""Classes of kernels and of the operators that launch them, by their names.

A kernel's name tells its class, rarely the operator. The order of a whole graph decides among the
operators of one class. A name in neither table is taken to be elementwise.
"""

from __future__ import annotations

import functools
import re

ELEMENTWISE = "elementwise"
_LISTS = "lists of tensors"
# Kernels that finish what the kernel before them began, for the same operator.
_FOLLOWS = re.compile(r"split_?k_?reduce|execute_split_k|PostGSU|lpnorm_cleanup", re.IGNORECASE)

# (class, pattern of kernel names, pattern of operator names); the first that matches counts.
_CLASSES = (
    (
        "attention backward",
        r"(?:flash|fmha|sdpa|attn|attention)\w*(?:bwd|bprop|backward|dgrad)|bwd\w*(?:flash|fmha|attn)"
        r"|dot_do_o|convert_dq",
        r"\w*(?:attention|flash)\w*(?:backward|bwd)\w*",
    ),
    ("attention", r"flash|fmha|sdpa|unpack_cudnn|attention|attn_fwd", r"\w*(?:attention|flash)\w*"),
    (
        "normalization backward",
        r"norm\w*(?:grad|backward)|bn_?bw|GammaBeta|GradientFusedParams|InternalGradients",
        r"\w*_norm\w*_backward\w*",
    ),
    (
        "normalization",
        r"(?:layer|batch|group|rms)_?norm|bn_?fw|rowwise_?moments|ComputeFusedParams",
        r"(?:native|cudnn|miopen|_native|_fused|_batch)_\w*norm\w*",
    ),
    ("softmax backward", r"softmax\w*backward", r"_\w*softmax_backward\w*"),
    ("softmax", r"softmax", r"_\w*softmax"),
    ("loss backward", r"nll_loss\w*backward", r"nll_loss\w*_backward"),
    ("loss", r"nll_loss", r"nll_loss\w*_forward"),
    (
        "contraction",
        r"nvjet|gem[mv]|splitk|xmma|cutlass|cublas|dot_kernel|reduce_1Block|conv|fprop|dgrad|wgrad"
        r"|winograd|nchwToNhwc|nhwcToNchw|cudnn|matmul|tensorop|_mm\b|^Cijk_|batched_transpose"
        r"|gridwise|miopen|Im2d?2?Col",
        r"\w*mm\w*|mv|addmv|v?dot|\w*conv\w+|_\w+_rnn\w*|linear_backward|_fp8\w*",
    ),
    (
        _LISTS,
        r"multi_tensor_apply|lpnorm_cleanup|FusedAdam|FusedSgd",
        r"_foreach_\w+|_fused_\w+|_amp_foreach\w*",
    ),
    ("dropout", r"fused_dropout|masked_scale", r"\w*native_dropout\w*|_fused_dropout"),
    ("concatenation", r"CatArray", r"_?cat|stack"),
    (
        "search",
        r"radix|cub::|thrust|bitonic|sort|topk|scan|DeviceSelect|DeviceReduce|unique",
        r"sort|topk|_?unique\w*|nonzero\w*|_?cum\w+|multinomial|masked_select|bincount|searchsorted"
        r"|kthvalue|randperm",
    ),
    (
        "indexing",
        r"index|gather|scatter|embedding|compute_grad_weight|krn_partial|\btake|compute_num_of_partial",
        r"_?index\w*|_unsafe_index\w*|gather|\w*scatter\w*|_?embedding\w*|take",
    ),
    ("pooling", r"pool", r"\w*pool\w*"),
    ("interpolation", r"upsample|interpolat", r"\w*upsample\w*"),
    (
        "reduction",
        r"reduce_kernel|ReduceOp|WelfordOps",
        r"sum|mean|std|var|var_mean|std_mean|prod|a?max|a?min|aminmax|arg\w+|norm|linalg_vector_norm"
        r"|all|any|logsumexp",
    ),
    (
        "random numbers",
        r"distribution|philox|bernoulli",
        r"random|normal|uniform|bernoulli|rand\w*|exponential",
    ),
    ("copy", r"copy_kernel|Memcpy", r"copy"),
    ("fill", r"FillFunctor|Memset", r"zero|fill"),
)
_KERNELS = tuple((name, re.compile(kernel, re.IGNORECASE)) for name, kernel, _ in _CLASSES)
_OPERATORS = tuple((name, re.compile(operator)) for name, _, operator in _CLASSES)
# Views, allocations, queries, and operators that only call others: they launch no kernel.
_LAUNCHES_NOTHING = re.compile(
    r"view\w*|as_strided\w*|_?expand\w*|transpose|t|permute|_?reshape\w*|_unsafe_view|select|slice"
    r"|narrow|unsqueeze|squeeze|detach_?|alias|unbind|\w*split\w*|\w*chunk|\w*empty\w*|_?resize\w*"
    r"|resolve_\w+|lift\w*|result_type|unflatten|flatten|movedim|swapaxes|diagonal|unfold|_to_copy|to"
    r"|clone|contiguous|item|_local_scalar_dense|is_\w+|size|stride|numel|set_\w*|requires_grad_"
    r"|real|imag|zeros\w*|ones\w*|full\w*|new_\w+|type_as|_version|dropout|softmax|log_softmax"
    r"|layer_norm|batch_norm|group_norm|rms_norm|linear|matmul|scaled_dot_product_attention"
    r"|conv[123]d|convolution|_convolution|convolution_backward|cross_entropy_loss|nll_loss|nll_loss_nd"
    r"|_fused_sdp_choice|record_stream|broadcast\w*|meshgrid|einsum|pad|_has_compatible\w*"
)
# Operators of these classes launch one kernel, and what follows it.
_ONE_KERNEL = frozenset({ELEMENTWISE, "copy", "fill", "contraction", "reduction", "dropout"})
_TYPES = re.compile(r"\(anonymous namespace\)")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.cache
def kernel_class(kernel: str) -> str:
    """The class of a kernel; a compiler's kernel is a class of its own, by its name."""
    if kernel.startswith("triton_"):
        return kernel
    function = _function_of(kernel)
    return next((name for name, kernel in _KERNELS if kernel.search(function)), ELEMENTWISE)


@functools.cache
def operator_class(operator: str) -> str | None:
    """The class of the kernels that an operator launches; None where it launches none."""
    namespace, separator, name = operator.rpartition("::")
    if not separator:
        return operator  # a compiler's kernel, which is called by its name
    stem = name.removesuffix("_") or name
    if namespace.startswith(("autograd", "torch")) or _LAUNCHES_NOTHING.fullmatch(name):
        return None
    return next((found for found, one in _OPERATORS if one.fullmatch(stem)), ELEMENTWISE)


def follows(kernel: str) -> bool:
    """Whether a kernel only ever finishes what another of the same operator began."""
    return _FOLLOWS.search(kernel) is not None


def may_repeat(class_of_kernel: str, *, another_kernel: bool = False) -> bool:
    """Whether an operator of the class may launch several kernels of it.

    A list of tensors is passed in parts to one kernel, and never to another.
    """
    if class_of_kernel in _ONE_KERNEL or class_of_kernel.startswith("triton_"):
        return False
    return not (another_kernel and class_of_kernel == _LISTS)


@functools.cache
def names(kernel: str, operator: str) -> bool:
    """Whether the words of the operator's name are in the kernel's."""
    words = _words(operator.rpartition("::")[2]) - {"foreach", "fused"}
    return bool(words) and words <= _words(_function_of(kernel))


@functools.cache
def _words(name: str) -> frozenset[str]:
    """The words of a name, whether joined by underscores or by capitals."""
    return frozenset(word.lower() for word in _WORD.findall(name))


def _function_of(kernel: str) -> str:
    """A kernel's name without the types of its arguments, which name anything."""
    depth = 0
    text = _TYPES.sub("[anonymous namespace]", kernel)
    for position, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return text[:position]
    return text
