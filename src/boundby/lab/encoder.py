"""A BERT encoder in plain torch: attention with a separate softmax, gelu, layer norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boundby.hardware.stopwatch import Workload


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything that determines the work of a step."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def scores(self) -> int:
        """Elements of the attention matrices of one layer."""
        return self.batch * self.heads * self.length**2


def training_step(shape: Shape, device: str, dtype: Any) -> Workload:
    """Forward, a squared loss, backward, AdamW."""
    import torch
    from torch import nn

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            width = shape.width
            self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.rise, self.fall = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            split = (batch, length, 3, shape.heads, width // shape.heads)
            q, k, v = self.qkv(x).view(split).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) * (width // shape.heads) ** -0.5
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
            x = self.norm1(x + self.mix(mixed))
            return self.norm2(x + self.fall(nn.functional.gelu(self.rise(x))))

    model = nn.Sequential(*(Layer() for _ in range(shape.layers))).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(shape.batch, shape.length, shape.width, device=device, dtype=dtype)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
