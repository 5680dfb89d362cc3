"""Train a deep MLP. Slow on purpose: it does what slow scripts do, and should stay as it is.

What is wrong with it:
- the mean of every layer's activations is logged with `.item()`: the host waits for the device
  once per layer, and the device then waits for the host;
- each batch is copied to the device from pageable memory, and the copy is waited for;
- the optimizer updates one parameter at a time (`foreach=False, fused=False`): many tiny kernels;
- everything is float32, so tensor cores stay idle.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LoggedMLP(nn.Module):
    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)
        self.means: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.means.clear()
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.relu(layer(norm(x)))
            self.means.append(x.mean().item())
        return self.head(x)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = device.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024 if large else 128)
    parser.add_argument("--batch", type=int, default=512 if large else 128)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    inputs = torch.randn(16 * args.batch, args.width)
    labels = (inputs @ torch.randn(args.width, args.classes)).argmax(dim=1)

    model = LoggedMLP(args.width, args.layers, args.classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False, fused=False)

    began = time.perf_counter()
    for step in range(args.steps):
        first = step * args.batch % len(inputs)
        x = inputs[first : first + args.batch].to(device)
        y = labels[first : first + args.batch].to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            seconds = time.perf_counter() - began
            print(
                f"step {step:3d}  loss {loss.item():.3f}  last mean {model.means[-1]:+.3f}  "
                f"{seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
