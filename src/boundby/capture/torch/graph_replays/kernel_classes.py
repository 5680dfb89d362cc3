"""Classes of kernels and of the operators that launch them, by their names.

A kernel's name gives its class, rarely the operator. The order of a whole graph decides among the
operators of one class. A name in neither table is assumed to be elementwise.
"""

from __future__ import annotations

import functools
import re

from boundby.model.kernel_names import function_of, kernel_name

ELEMENTWISE = "elementwise"
_CONTRACTION = "contraction"
_LISTS = "lists of tensors"
# Kernels that finish what the kernel before them began, for the same operator.
_FOLLOWS = re.compile(r"split_?k_?reduce|execute_split_k|PostGSU|lpnorm_cleanup", re.IGNORECASE)

# (class, pattern of operator names); the first that matches counts. The classes are the kinds of
# `kernel_name`; those of `_OF_PRODUCTS` are one class, because an operator may launch any of them.
_OPERATORS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("attention backward", r"\w*(?:attention|flash)\w*(?:backward|bwd)\w*"),
        ("attention", r"\w*(?:attention|flash)\w*"),
        ("normalization backward", r"\w*_norm\w*_backward\w*"),
        ("normalization", r"(?:native|cudnn|miopen|_native|_fused|_batch)_\w*norm\w*"),
        ("softmax backward", r"_\w*softmax_backward\w*"),
        ("softmax", r"_\w*softmax"),
        ("loss backward", r"nll_loss\w*_backward"),
        ("loss", r"nll_loss\w*_forward"),
        (
            _CONTRACTION,
            r"\w*mm\w*|mv|addmv|v?dot|\w*conv\w+|_\w+_rnn\w*|linear_backward|_fp8\w*",
        ),
        (_LISTS, r"_foreach_\w+|_fused_\w+|_amp_foreach\w*"),
        ("dropout", r"\w*native_dropout\w*|_fused_dropout"),
        ("concatenation", r"_?cat|stack"),
        (
            "search",
            r"sort|topk|_?unique\w*|nonzero\w*|_?cum\w+|multinomial|masked_select|bincount"
            r"|searchsorted|kthvalue|randperm",
        ),
        (
            "indexing",
            r"_?index\w*|_unsafe_index\w*|gather|\w*scatter\w*|_?embedding\w*|take",
        ),
        ("pooling", r"\w*pool\w*"),
        ("interpolation", r"\w*upsample\w*"),
        (
            "reduction",
            r"sum|mean|std|var|var_mean|std_mean|prod|a?max|a?min|aminmax|arg\w+|norm"
            r"|linalg_vector_norm|all|any|logsumexp",
        ),
        ("random numbers", r"random|normal|uniform|bernoulli|rand\w*|exponential"),
        ("copy", r"copy"),
        ("fill", r"zero|fill"),
    )
)
_OF_PRODUCTS = ("convolution", "layout")
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
_ONE_KERNEL = frozenset({ELEMENTWISE, "copy", "fill", _CONTRACTION, "reduction", "dropout"})
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.cache
def kernel_class(kernel: str) -> str:
    """The class of a kernel; a compiler's kernel is its own class, by its name."""
    if kernel.startswith("triton_"):
        return kernel
    kind = kernel_name(kernel).kind
    if kind in _OF_PRODUCTS:
        return _CONTRACTION
    return "reduction" if kind == "norm" else kind or ELEMENTWISE


@functools.cache
def operator_class(operator: str) -> str | None:
    """The class of the kernels that an operator launches; None if it launches none."""
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
    return bool(words) and words <= _words(function_of(kernel))


@functools.cache
def _words(name: str) -> frozenset[str]:
    """The words of a name, whether joined by underscores or by capitals."""
    return frozenset(word.lower() for word in _WORD.findall(name))
