"""In what float32 products may be computed, as the script has set it; only ever read.

torch 2.9 brought `fp32_precision`, which follows what the older switches set. Those do not follow
it: where a script uses the new way, reading an old switch raises, and a warning may come before.
Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

from typing import Any

# By device, and by what is computed: products, convolutions, recurrent layers.
Allowed = dict[str, dict[str, str | None]]

_DTYPES = {"ieee": "float32", "none": "float32", "tf32": "tf32", "bf16": "bfloat16"}
# What CUDA's libraries and oneDNN make of `set_float32_matmul_precision`.
_BY_LEVEL = {
    "highest": {"cuda": "float32", "cpu": "float32"},
    "high": {"cuda": "tf32", "cpu": "tf32"},
    "medium": {"cuda": "tf32", "cpu": "bfloat16"},
}


def float32_allowed(torch: Any) -> Allowed:
    """The dtype that the units may compute float32 products in; None where nobody tells."""
    if hasattr(torch.backends, "fp32_precision"):
        allowed = _by_backend(torch.backends)
    else:
        allowed = _by_switches(torch)
    if not torch.backends.mkldnn.is_available() or not getattr(
        torch.backends.mkldnn, "enabled", True
    ):
        # What else multiplies on a CPU knows of no such setting.
        allowed["cpu"] = dict.fromkeys(allowed["cpu"], "float32")
    return allowed


def _by_backend(backends: Any) -> Allowed:
    def dtype(setting: Any) -> str | None:
        return _DTYPES.get(setting.fp32_precision)

    return {
        "cuda": {
            "products": dtype(backends.cuda.matmul),
            "convolutions": dtype(backends.cudnn.conv),
            "recurrent": dtype(backends.cudnn.rnn),
        },
        "cpu": {
            "products": dtype(backends.mkldnn.matmul),
            "convolutions": dtype(backends.mkldnn.conv),
            "recurrent": dtype(backends.mkldnn.rnn),
        },
    }


def _by_switches(torch: Any) -> Allowed:
    """Before torch 2.9. Convolutions on a CPU had no switch."""
    products = _BY_LEVEL[torch.get_float32_matmul_precision()]
    loose = "tf32" if torch.backends.cudnn.allow_tf32 else "float32"
    return {
        "cuda": {"products": products["cuda"], "convolutions": loose, "recurrent": loose},
        "cpu": {"products": products["cpu"], "convolutions": None, "recurrent": None},
    }
