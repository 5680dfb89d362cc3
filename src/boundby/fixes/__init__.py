"""Changes to a running program: what a user would write into a script, without editing it.

One file per kind of change. `FIXES` lists all of them; each fault names those that remove it.
Nothing heavy is imported: this is loaded before the script, which may set options for the import of
torch.
"""

from __future__ import annotations

from boundby.fixes import (
    allocator,
    attention,
    checkpointing,
    compiled,
    cuda_graphs,
    debug_settings,
    dropout,
    gradients,
    jax_step,
    layout,
    loaders,
    optimizers,
    precision,
    threads,
)
from boundby.fixes.fix import Fix

__all__ = ["FIXES", "Fix"]

FIXES: tuple[Fix, ...] = (
    optimizers.FUSED,
    optimizers.GRADIENTS_TO_NONE,
    precision.TF32,
    precision.BFLOAT16_PRODUCTS,
    precision.AUTOCAST,
    precision.NO_AUTOCAST,
    compiled.COMPILE,
    compiled.REDUCE_OVERHEAD,
    compiled.MAX_AUTOTUNE,
    cuda_graphs.CUDA_GRAPHS,
    attention.SDPA,
    attention.CUDNN_ATTENTION,
    attention.FLASH_ATTENTION,
    attention.EFFICIENT_ATTENTION,
    layout.CHANNELS_LAST,
    loaders.WORKERS,
    loaders.ALL_WORKERS,
    loaders.PINNED,
    threads.SLEEPING_THREADS,
    threads.ONE_THREAD,
    threads.AS_MANY_AS_CORES,
    checkpointing.CHECKPOINTS,
    checkpointing.NO_CHECKPOINTS,
    allocator.EXPANDABLE_SEGMENTS,
    allocator.KEPT_MEMORY,
    dropout.SHORT_MASKS,
    debug_settings.NO_ANOMALY_DETECTION,
    debug_settings.UNFILLED_MEMORY,
    debug_settings.NOT_DETERMINISTIC,
    debug_settings.CUDNN_BENCHMARK,
    debug_settings.UNCHECKED_DISTRIBUTIONS,
    gradients.UNRECORDED_EVALUATION,
    jax_step.DONATION,
    jax_step.BFLOAT16_PRODUCTS,
    jax_step.DEFAULT_PRODUCTS,
)
