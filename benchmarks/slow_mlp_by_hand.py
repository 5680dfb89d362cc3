"""examples/slow_mlp.py with what `boundby prove` can change from outside, written by hand.

    python benchmarks/slow_mlp_by_hand.py --fused --tf32 --compile

Its syncs stay: to remove them is an edit that no tool makes for you.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from slow_mlp import LoggedMLP


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = device.type == "cuda"
    width, batch = (1024, 512) if large else (128, 128)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    inputs = torch.randn(16 * batch, width)
    labels = (inputs @ torch.randn(width, 10)).argmax(dim=1)
    model = LoggedMLP(width, 24, 10).to(device)
    if args.compile:
        model = torch.compile(model, mode=args.mode)
    fused = {"fused": True} if args.fused else {"foreach": False, "fused": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **fused)
    for step in range(args.steps):
        first = step * batch % len(inputs)
        x = inputs[first : first + batch].to(device)
        y = labels[first : first + batch].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=args.autocast):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
