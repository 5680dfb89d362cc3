"""Work that looks for something: its time is not that of its bytes.

No floor stands for it, and no compiler makes it part of a pass over memory: Inductor hands sorting
and the like on to the library. What adds at scattered places (the gradient of an embedding) is not
among them: Inductor writes that at the end of the kernel that makes it.
"""

from __future__ import annotations

from boundby.step.op_record import OpRecord

# Or whose result is as long as what it finds.
_SEARCHES = frozenset(
    (
        "argsort",
        "argwhere",
        "bincount",
        "_ctc_loss",
        "_ctc_loss_backward",
        "_cudnn_ctc_loss",
        "histc",
        "histogram",
        "isin",
        "kthvalue",
        "masked_scatter",
        "masked_select",
        "median",
        "mode",
        "msort",
        "multinomial",
        "nanmedian",
        "nonzero",
        "nonzero_static",
        "randperm",
        "repeat_interleave",
        "searchsorted",
        "sort",
        "topk",
        "unique",
        "_unique",
        "_unique2",
        "unique_consecutive",
        "unique_dim",
    )
)


def searches(work: OpRecord) -> bool:
    """In place or not."""
    return work.name.rpartition("::")[2].removesuffix("_") in _SEARCHES
