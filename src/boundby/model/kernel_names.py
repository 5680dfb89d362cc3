"""What the name of a kernel says: its class and its dtype.

One table for all libraries. A name is compared with the rows in order and the first that matches
decides, so specific rows come before general ones. A name that matches none has no class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from boundby.model.record import Record

KernelClass = Literal[
    "matrix product",
    "convolution",
    "attention",
    "normalization",
    "elementwise",
    "reduction",
    "copy",
    "communication",
    "embedding",
    "sort",
    "optimizer",
    "generated",
]


class KernelName(Record, frozen=True, kw_only=True):
    """`kind` is finer than the class: "softmax backward", "pooling"."""

    kernel_class: KernelClass | None = None
    kind: str | None = None
    dtype: str | None = None


class _Row(NamedTuple):
    kind: str
    kernel_class: KernelClass
    pattern: str


_TABLE = (
    # Inductor's kernels; the rest of the name lists their fused operators.
    _Row("attention", "attention", r"^triton_tem\w*(?:attention|flex)"),
    _Row("convolution", "convolution", r"^triton_tem\w*conv"),
    _Row("contraction", "matrix product", r"^triton_(?:tem|mm|bmm|addmm)_|^cutedsl_"),
    _Row(
        "generated", "generated", r"^triton_(?:poi|red|per|for|unk|split_scan|_\d)|^triton_\w*\d+d"
    ),
    _Row(
        "generated", "generated", r"^(?:cpp_|graph_\d+_)?(?:cpp_)?fused_\w+_\d+$|_fusion(?:_\d+)?$"
    ),
    _Row(
        "communication",
        "communication",
        r"nccl|rccl|msccl|oneccl|hccl|hcom_|nvshmem|rocshmem|deep_?ep\b|mori::"
        r"|(?:inter|intra)node(?:_ll)?::|multimem_|(?:one|two)_?shot|cross_device_reduce|all_?reduce"
        r"|all_?gather|reduce_?scatter|all_?to_?all|quick_?reduce|lamport|symm_mem|userbuffers"
        r"|send_?recv|barrier_all|ep_(?:dispatch|combine)|low_latency_(?:dispatch|combine)",
    ),
    _Row(
        "cache write",
        "copy",
        r"reshape_?and_?cache|concat_and_cache|(?:set|store|append|copy|write|gather)_?\w*kv_?(?:cache"
        r"|buffer)|AppendPaged|PaKvCache|(?:copy|swap)_blocks|page_indices|kv_indices|store_cache"
        r"|MlaPreprocess|cp_gather_cache|kvcache\w*(?:scatter|update|write)",
    ),
    _Row(
        "lists of tensors",
        "optimizer",
        r"multi_?tensor|Fused(?:Adam|Sgd|Adagrad|Lamb)|^Apply(?:Adam|Momentum|Rms)|kOptimizer"
        r"|kPreconditionOptimizer|(?<!codegen_)(?:^|_|::|\b)(?:adam|adamw|lamb|lion|muon)\w*"
        r"(?:_kernel|_cuda|_step|_update|functor|$)|sgd_\w*kernel",
    ),
    _Row("random numbers", "elementwise", r"distribution_|philox_\w+_kernel|\bcurand"),
    _Row("rotation", "elementwise", r"rotary|\brope|_rope|Rope(?!Cache)"),
    _Row(
        "attention backward",
        "attention",
        r"(?:flash(?!infer)|fmha|sdpa|attn|attention)\w*(?:bwd|bprop|backward|dgrad|grad)"
        r"|bwd\w*(?:flash|fmha|attn)|dot_do_o|convert_dq|_bwd_(?:kernel_dk|dkdv|preprocess)",
    ),
    _Row(
        "attention",
        "attention",
        r"flash(?!infer)|fmha|sdpa|unpack_cudnn|attention|attn|MLA(?![a-z])|mla_|_mla|_att_|PagedKV|RaggedKV"
        r"|(?:Batch|Single)(?:Prefill|Decode)|merge_?states?|MergeStates|^_?fwd_(?:grouped_)?kernel"
        r"|_fwd_(?:grouped_)?kernel(?:_stage\d)?$|fav[23]|selective_scan|ssd_|_chunk_(?:scan|state)"
        r"|sage_fwd|gated_delta|(?:\b|\d)pa_(?:fwd|decode|bf16|fp8|kernel)|splitkv|\bdpa\b|Fmha",
    ),
    _Row("norm", "reduction", r"lp_?norm|NormOps|NormTwoOps|NormOneOps|vector_norm|grad_?norm"),
    _Row(
        "search",
        "sort",
        r"top_?k|top_?p|radix|bitonic|\bsort|_sort|[a-z]Sort|^Sort|sampling|sample_kernel|multinomial"
        r"|routing(?!_finalize|\w*finalize)|moe_align|gating|searchsorted|DeviceSelect|unique"
        r"|NonZero|non_?zero|ReduceByKey|(?<!selective_)(?:\b|_|Device)scan|cumsum|cumprod|kthvalue"
        r"|bincount|histogram|randperm|bitmatrix|DeviceCompact|expert_offsets|ArgSort",
    ),
    _Row(
        "normalization backward",
        "normalization",
        r"norm\w*(?:grad|backward|bwd)|bn_?bw|ln_bwd|GammaBeta|GradientFusedParams|InternalGradients",
    ),
    _Row(
        "normalization",
        "normalization",
        r"(?:layer|batch|group|rms|instance|weight)_?norm|norm_(?:quant|kernel|fwd)|[a-z]Norm(?!al)"
        r"|bn_?fw|ln_fwd|rowwise_?moments|ComputeFusedParams|BatchNorm|qk_norm|_norm_|BNInfer"
        r"|BNTraining|l2norm",
    ),
    _Row("softmax backward", "normalization", r"soft_?max\w*(?:backward|grad|bwd)|soft_?max_?bwd"),
    _Row("softmax", "normalization", r"soft_?max|logsumexp"),
    _Row("loss backward", "reduction", r"(?:nll_?loss|criterion)\w*(?:backward|gradinput)"),
    _Row("loss", "reduction", r"nll_?loss|criterion|cross_?entropy|\w_loss"),
    # cuDNN, MIOpen and CK convert tensors to the layout that their convolutions need.
    _Row(
        "layout",
        "copy",
        r"nchwToNhwc|nhwcToNchw|batched_transpose|transpose_[CNHW]+2[CNHW]+|im2d?2?col|col2im"
        r"|TransData|simple_reorder|ref_reorder",
    ),
    _Row(
        "convolution",
        "convolution",
        r"conv(?!ert|ersion)|fprop|[dw]grad(?!_gemm)|winograd|scudnn|igemm_(?:fwd|bwd|wrw)|miopen"
        r"|bwd_(?:weight|data)|cask_cudnn|cudnn::cnn|gridwise_?conv|depthwise|conv1d|MIOpenConv",
    ),
    _Row(
        "contraction",
        "matrix product",
        r"nvjet|(?<!fb)gem[mv]|split_?k|xmma|cutlass|cublas|hipblas|rocblas|dot_kernel|reduce_1Block|mat_?mul"
        r"|tensorop(?!with)|(?:^|_|\d|b)mm(?:_|\b)|^Cijk_|PostGSU|gridwise|marlin|machete|awq|gptq|exllama"
        r"|wvSplit|LLMM|fused_?moe|fmoe|moe_?(?:stage|gemm|mlp|kernel)|MoeFlatmm|w\d+a\d+|a\d+w\d+"
        r"|sgmv|bgmv|lora_(?:shrink|expand)|linear_kernel|wmma|mfma|xetla|brgemm|inner_product|_fc_"
        r"|epilogue::impl|kernel_mha|RNN_|persist\w*_(?:LSTM|GRU)|magma|ggml_mul|mul_mat|dgemm|cusolver|trsm|potrf",
    ),
    _Row("dropout", "elementwise", r"dropout|masked_scale|DropOut"),
    _Row("concatenation", "copy", r"CatArray|concat"),
    _Row("elementwise", "elementwise", r"cast_transpose|transpose_cast"),
    _Row(
        "indexing",
        "embedding",
        r"embedding|(?<!with_)index|gather|scatter|compute_grad_weight|krn_partial|\btake|compute_num_of_partial"
        r"|fbgemm|bounds_check|bucketize|jagged|permute_(?:1D|2D|pooled)|linearize|\btbe|_tbe|one_hot",
    ),
    _Row("pooling", "reduction", r"pool"),
    _Row("interpolation", "elementwise", r"upsample|interpolat|grid_sampl|resize"),
    _Row("search", "sort", r"thrust|cub::(?!\w*Reduce)"),
    _Row(
        "copy",
        "copy",
        r"copy_?kernel|direct_copy|Memcpy|_copy_|\bcopy|TensorMove|transpose|permute",
    ),
    _Row(
        "fill", "copy", r"FillFunctor|Memset|\bfill|_fill|zero_?fill|ZerosLike|OnesLike|set_?zero"
    ),
    _Row(
        "reduction",
        "reduction",
        r"reduce|WelfordOps|MeanOps|(?:\b|_)(?:sum|mean|amax|amin|var)(?:_|\b)|arg_?m(?:ax|in)"
        r"|finalize|(?<=[a-z])(?:Sum|Mean)(?:[A-Z]|\b|_)|histc",
    ),
    _Row(
        "elementwise",
        "elementwise",
        r"element_?wise|pointwise|unary|binary|_functor|Functor|activation|act_and|silu|gelu|relu"
        r"|swi_?glu|glu_|quant|cast|convert|sigmoid|tanh|scale|clamp|SubTensorOp|OpTensor|addTensor"
        r"|op_tensor|eltwise|_foreach|masked|where|lerp|(?:\b|_)(?:add|mul|sub|div|exp|sqrt|rsqrt|pow"
        r"|neg|abs|log|max|min)(?:_|\b|kernel)|^(?:Add|Mul|Sub|RealDiv|Div|Exp|Sqrt|Rsqrt|Pow|Neg|Abs"
        r"|Log|Maximum|Minimum|Select|Equal|Greater|Less|Logical|Reciprocal|Square|Muls|Adds|Axpy"
        r"|Sigmoid|Tanh|Erf|Cos|Sin)|AiCore_(?:Add|Mul|Sub|RealDiv|Exp|Sqrt|Cast)|saxpy|axpy|scal_",
    ),
    _Row(
        "copy",
        "copy",
        r"copy|\bdma_|Slice|Split|Concat|Pad|Tile|BroadcastTo|Expand|tril|triu|flip|roll|arange|Range|clone"
        r"|contiguous|padding|expandInput|memset",
    ),
    _Row("generated", "generated", r"^triton_"),
)
_ANONYMOUS = re.compile(r"\(anonymous namespace\)")
# The return type of a template may be a condition with its own brackets.
_CONDITION = re.compile(r"^std::enable_if<.*?>::type ")
# Longer names are cut: the class is at the beginning.
_LONGEST = 4000

# Classes in which the inputs' dtype decides the rate; for the others a single dtype is returned.
_PRODUCTS = ("matrix product", "convolution", "attention")
_DTYPES = (
    ("float4", re.compile(r"e2m1|[mn]v?x?fp4|fp4|Float4", re.IGNORECASE)),
    ("float8", re.compile(r"e4m3|e5m2|fp8|float_?8|_f8|F8[BN_]|nvjet_(?:sm\d+_)?q", re.IGNORECASE)),
    (
        "int8",
        re.compile(r"(?:^|[_<])(?:s8|i8)(?:_|i8)|(?<!u)int8|w8a8|a8w8|Cijk_\w+?_I8", re.IGNORECASE),
    ),
    (
        "bfloat16",
        re.compile(r"bf16|bfloat_?16|DF16b|Cijk_\w+?_BB?S_B|nvjet_(?:sm\d+_)?t", re.IGNORECASE),
    ),
    (
        "float16",
        re.compile(
            r"(?<!b)fp?16(?!b|\d)|\bhalf|_half|(?<!B)Float16|c10::Half|hgemm|_h(?:16816|884)gemm"
            r"|Cijk_\w+?_HH?S_B|nvjet_(?:sm\d+_)?h|(?<=[<,_ ])__half"
        ),
    ),
    ("tf32", re.compile(r"tf32|s1688", re.IGNORECASE)),
    ("float64", re.compile(r"\bdouble\b|(?<!of)f64|dgemm|Cijk_\w+?_DB_")),
    ("float32", re.compile(r"\bfloat\b|f32f32|sgemm|_s_B_|Cijk_\w+?_S_?B_|nvjet_(?:sm\d+_)?s")),
)


@functools.lru_cache(maxsize=1 << 16)
def kernel_name(name: str) -> KernelName:
    """The class, kind and dtypes of a kernel, from its name."""
    text = function_of(name[:_LONGEST])
    row = next((row for row in _TABLE if _compiled(row.pattern).search(text)), None)
    if row is None:
        return KernelName(dtype=_only(_dtypes(text)))
    products = row.kernel_class in _PRODUCTS
    is_list = row.kernel_class == "optimizer"  # it also names the wider type that it computes in
    dtypes = _dtypes(text)
    return KernelName(
        kernel_class=row.kernel_class,
        kind=row.kind,
        dtype=next(iter(dtypes), None) if products or is_list else _only(dtypes),
    )


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the table; short traces need few, and compiling all takes a tenth of theirs."""
    return re.compile(pattern, re.IGNORECASE)


def function_of(name: str) -> str:
    """A kernel's name without the types of its arguments, which may contain any name."""
    depth = 0
    text = _ANONYMOUS.sub("[anonymous namespace]", _CONDITION.sub("", name))
    for position, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return text[:position]
    return text


def _dtypes(text: str) -> list[str]:
    """The dtypes in a name, the narrowest first."""
    return [dtype for dtype, pattern in _DTYPES if pattern.search(text)]


def _only(dtypes: Iterable[str]) -> str | None:
    listed = list(dtypes)
    return listed[0] if len(listed) == 1 else None
