"""Performance laws as experiments: predicted from the saved machine, then measured."""

from __future__ import annotations

from boundby.lab import (
    ahead,
    batch,
    classes,
    compilers,
    doubling,
    fusion,
    intensity,
    matmul,
    overlap,
    precision,
    python,
    remat,
    shard,
    transfer,
)
from boundby.lab.experiment import HEADINGS, Experiment

__all__ = ["EXPERIMENTS", "HEADINGS", "Experiment"]

EXPERIMENTS: tuple[Experiment, ...] = (
    fusion.EXPERIMENT,
    intensity.EXPERIMENT,
    matmul.EXPERIMENT,
    batch.EXPERIMENT,
    doubling.EXPERIMENT,
    classes.EXPERIMENT,
    python.EXPERIMENT,
    ahead.EXPERIMENT,
    transfer.EXPERIMENT,
    precision.EXPERIMENT,
    remat.EXPERIMENT,
    overlap.EXPERIMENT,
    shard.EXPERIMENT,
    compilers.EXPERIMENT,
)
