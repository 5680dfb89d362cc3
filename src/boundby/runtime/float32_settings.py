"""The precision of float32 products, as the script has set it; only read, never set.

torch 2.9 added `fp32_precision`, which follows the older switches. Those do not follow it: if a
script uses the new setting, reading an old switch raises, possibly after a warning. Loaded before
the script: nothing heavy is imported.
"""

from __future__ import annotations

from typing import Any

# By device and kind of operator: products, convolutions, recurrent layers.
Allowed = dict[str, dict[str, str | None]]

_DTYPES = {"ieee": "float32", "none": "float32", "tf32": "tf32", "bf16": "bfloat16"}
# The formats that CUDA's libraries and oneDNN derive from `set_float32_matmul_precision`.
_BY_LEVEL = {
    "highest": {"cuda": "float32", "cpu": "float32"},
    "high": {"cuda": "tf32", "cpu": "tf32"},
    "medium": {"cuda": "tf32", "cpu": "bfloat16"},
}


def float32_allowed(torch: Any) -> Allowed:
    """The dtype in which float32 products may be computed; None if unknown."""
    if hasattr(torch.backends, "fp32_precision"):
        allowed = _by_backend(torch.backends)
    else:
        allowed = _by_switches(torch)
    if not torch.backends.mkldnn.is_available() or not getattr(
        torch.backends.mkldnn, "enabled", True
    ):
        # Other products on a CPU have no such setting.
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
    """The allowed dtypes by the switches of torch before 2.9. Convolutions on a CPU had no
    switch."""
    products = _BY_LEVEL[torch.get_float32_matmul_precision()]
    loose = "tf32" if torch.backends.cudnn.allow_tf32 else "float32"
    return {
        "cuda": {"products": products["cuda"], "convolutions": loose, "recurrent": loose},
        "cpu": {"products": products["cpu"], "convolutions": None, "recurrent": None},
    }
