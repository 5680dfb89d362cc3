"""What boundby's hooks cost a clean step: on and off on alternate steps of one eager process.

    python benchmarks/hook_cost.py --device cuda --layers 24

Prints the median ratio of neighbouring steps, on over off, with a bootstrap interval. The model is
a BERT-like stack of encoder layers in plain torch, trained with AdamW. Off means absent: torch as
it was; with `--off silent` the hooks stay and nobody listens. Each switch is followed by a step
that is not timed, in which the interpreter settles.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from boundby.capture.live.hooks import Hooks
from boundby.capture.live.plan import Plan
from boundby.capture.live.recorder import Recorder
from boundby.capture.live.windows import Window


def main() -> None:
    options = parse()
    device = torch.device(options.device)
    switch = switching(absent=options.off == "absent")
    step = training(options, device)
    # The first step shows which module is the outermost: from then on it alone is watched.
    switch(True)
    for _ in range(options.warmup):
        step()
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * options.steps):
        # Pairs in changing order: what drifts, drifts for both.
        listens = (number % 2 == 0) ^ (number // 2 % 2 == 0)
        switch(listens)
        step()
        wait(device)
        began = time.perf_counter_ns()
        step()
        wait(device)
        times[listens].append(time.perf_counter_ns() - began)
    ratio, low, high = compare(np.array(times[True]), np.array(times[False]))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    modules = sum(1 for _ in encoder(options).modules())
    print(
        f"{name}: {options.layers} layers, {modules} modules, {options.steps} steps each: "
        f"{np.median(times[False]) / 1e6:.3f} ms without, {np.median(times[True]) / 1e6:.3f} with, "
        f"ratio {ratio:.4f} ({low:.4f} to {high:.4f})"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"ratio": ratio, "low": low, "high": high, **named(times)})
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100, help="of each, hooks on and off")
    parser.add_argument("--off", choices=["absent", "silent"], default="absent")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def switching(*, absent: bool) -> Callable[[bool], None]:
    hooks, recorder = Hooks(), listening()
    if not absent:
        hooks.install(torch)
    narrowed = absent

    def switch(listens: bool) -> None:
        if absent:
            # Both ways alike: a class that changes makes the interpreter forget what it learned.
            hooks.remove()
            hooks.install(torch)
            hooks.narrow()
            if not listens:
                hooks.remove()
        nonlocal narrowed
        if not narrowed and not listens:
            hooks.narrow()
            narrowed = True
        hooks.watcher = recorder if listens else None

    return switch


def listening() -> Recorder:
    """A recorder in its clean window, which it never leaves."""
    plan = Plan(warmup=1, clean=10**9, most_clean_s=1e9)
    recorder = Recorder(torch, plan=plan, step_by="auto", folder=Path(), on_done=lambda: None)
    recorder.windows.step_ended("train")
    assert recorder.windows.window is Window.CLEAN
    return recorder


class Attention(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        parts = (part(x).unflatten(-1, (self.heads, -1)) for part in self.inputs)
        query, key, value = (part.transpose(1, 2) for part in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.dropouts = torch.nn.ModuleList([torch.nn.Dropout(0.1), torch.nn.Dropout(0.1)])
        self.up, self.gelu = torch.nn.Linear(width, 4 * width), torch.nn.GELU()
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        x = self.norms[0](x + self.dropouts[0](self.attention(x)))
        return self.norms[1](x + self.dropouts[1](self.down(self.gelu(self.up(x)))))


def encoder(options: argparse.Namespace) -> Any:
    layers = [Layer(options.width, options.heads) for _ in range(options.layers)]
    return torch.nn.Sequential(*layers)


def training(options: argparse.Namespace, device: torch.device) -> Any:
    model = encoder(options).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = torch.randn(options.batch, options.length, options.width, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(rows).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compare(on: Any, off: Any) -> tuple[float, float, float]:
    """The median ratio of neighbouring steps, and its 95% interval over resampled pairs."""
    ratios = on / off
    picks = np.random.default_rng(0).integers(len(ratios), size=(4000, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def named(times: dict[bool, list[float]]) -> dict[str, list[float]]:
    return {"on_ns": times[True], "off_ns": times[False]}


if __name__ == "__main__":
    main()
