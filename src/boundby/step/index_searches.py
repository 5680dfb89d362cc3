"""Operators that search: their time does not depend on their bytes alone.

They have no roofline minimum, and no compiler fuses them: Inductor leaves sorting and similar
operators to the library. Operators that add at scattered places (the gradient of an embedding) are
not included: Inductor writes those at the end of the kernel that makes their input.
"""

from __future__ import annotations

from boundby.step.op_record import OpRecord

# Also operators whose result has as many entries as were found.
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


def searches(record: OpRecord) -> bool:
    """Whether the operator searches, also in place."""
    return record.name.rpartition("::")[2].removesuffix("_") in _SEARCHES
