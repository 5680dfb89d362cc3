"""How torch asks the device for memory."""

from __future__ import annotations

from boundby.program.treatment import Treatment

_SETTING = "expandable_segments:True"

EXPANDABLE_SEGMENTS = Treatment(
    name="expandable-segments",
    change=f"PYTORCH_CUDA_ALLOC_CONF={_SETTING} python train.py",
    # Its old name and its new one.
    environment={"PYTORCH_CUDA_ALLOC_CONF": _SETTING, "PYTORCH_ALLOC_CONF": _SETTING},
    devices=("cuda",),
)
