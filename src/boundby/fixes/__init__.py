"""Changing a program from outside: what a user would write into a script, without touching it.

One file per kind of change. `FIXES` says which of them mend which fault, the likeliest first.
Nothing heavy is imported: all this is loaded before the script, which may set how torch is loaded.
"""

from __future__ import annotations

from boundby.fixes import (
    allocator,
    attention,
    checkpointing,
    dropout,
    layout,
    loaders,
    optimizers,
    precision,
    threads,
)
from boundby.fixes import compiled as compilation
from boundby.fixes import cuda_graphs as graphs
from boundby.fixes.fix import Fix

__all__ = ["FIXES", "Fix"]

FIXES: dict[str, tuple[Fix, ...]] = {
    "unfused-optimizer": (optimizers.FUSED,),
    "zeroed-gradients": (optimizers.GRADIENTS_TO_NONE,),
    "float32-products": (precision.TF32, precision.BFLOAT16_PRODUCTS, precision.AUTOCAST),
    "float32-activations": (precision.AUTOCAST,),
    "slow-sixteen-bits": (precision.NO_AUTOCAST,),
    "eager-launches": (
        compilation.REDUCE_OVERHEAD,
        compilation.COMPILE,
        graphs.CUDA_GRAPHS,
        compilation.MAX_AUTOTUNE,
    ),
    "materialised-attention": (attention.SDPA, compilation.COMPILE),
    "wasted-tiles": (compilation.COMPILE,),  # which pads odd dimensions
    # A step that its device binds now may be bound by its host once it has fewer kernels.
    "unfused-operators": (compilation.COMPILE, compilation.REDUCE_OVERHEAD),
    "layout-copies": (layout.CHANNELS_LAST,),
    "waiting-for-data": (loaders.WORKERS, loaders.ALL_WORKERS),
    "pageable-copies": (loaders.PINNED,),
    "openmp-spin": (threads.SLEEPING_THREADS, threads.ONE_THREAD),
    "wasteful-checkpointing": (checkpointing.NO_CHECKPOINTS,),
    "fragmented-memory": (allocator.EXPANDABLE_SEGMENTS, checkpointing.CHECKPOINTS),
    "memory-given-back": (allocator.KEPT_MEMORY,),
    "slow-attention": (
        attention.CUDNN_ATTENTION,
        attention.FLASH_ATTENTION,
        attention.EFFICIENT_ATTENTION,
    ),
    "slow-dropout": (dropout.SHORT_MASKS,),
    "far-from-roof": (compilation.COMPILE, compilation.MAX_AUTOTUNE),
}
