"""What boundby's hooks cost a clean step: on and off on alternate steps of one eager process.

    python benchmarks/hook_cost.py --device cuda --layers 24

Prints the median ratio of neighbouring steps, on over off, with a bootstrap interval: of all pairs,
and of those in which the host kept its pace. A fixed loop of Python before and after each timed
step, outside of what is timed, says whether it did: within 10% in all four. It goes on until
`--steps` such pairs were seen or `--seconds` are over.

The model is a BERT-like stack of encoder layers in plain torch, trained with AdamW. Off means
absent: torch as it was; with `--off silent` the hooks stay and nobody listens. Each switch is
followed by a step that is not timed, in which the interpreter settles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from medians import median_interval

from boundby.capture.process.plan import Plan
from boundby.capture.process.windows import Window
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.recorder import Recorder
from boundby.model.host_speed import addition_ns

# The host's pace is the same where the fixed loop never took longer by more than this.
SAME_PACE = 1.10


class Sample(NamedTuple):
    """One timed step, and one addition in Python before and after it."""

    step_ns: float
    paces_ns: tuple[float, float]


class Pair(NamedTuple):
    on: Sample
    off: Sample

    @property
    def ratio(self) -> float:
        return self.on.step_ns / self.off.step_ns

    @property
    def steady(self) -> bool:
        paces = (*self.on.paces_ns, *self.off.paces_ns)
        return max(paces) <= SAME_PACE * min(paces)


def main() -> None:
    options = parse()
    device = torch.device(options.device)
    switch = switching(absent=options.off == "absent")
    step = training(options, device)
    # The first step shows which module is the outermost: from then on it alone is watched.
    switch(True)
    for _ in range(options.warmup):
        step()
    pairs = take_pairs(
        lambda listens: sample(listens, switch, step, lambda: wait(device)),
        count=options.steps,
        seconds=options.seconds,
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    modules = sum(1 for _ in encoder(options).modules())
    print(f"{name}: {options.layers} layers, {modules} modules")
    print(words(pairs))
    if options.json:
        options.json.write_text(json.dumps(named(pairs)))


def take_pairs(take: Callable[[bool], Sample], *, count: int, seconds: float) -> list[Pair]:
    """Steps with and without in changing order: what drifts, drifts for both."""
    pairs: list[Pair] = []
    deadline = time.monotonic() + seconds
    while sum(pair.steady for pair in pairs) < count and time.monotonic() < deadline:
        first = len(pairs) % 2 == 0
        samples = {listens: take(listens) for listens in (first, not first)}
        pairs.append(Pair(on=samples[True], off=samples[False]))
    return pairs


def sample(
    listens: bool,
    switch: Callable[[bool], None],
    step: Callable[[], None],
    settle: Callable[[], None],
) -> Sample:
    switch(listens)
    step()
    settle()
    before = addition_ns()
    began = time.perf_counter_ns()
    step()
    settle()
    taken = time.perf_counter_ns() - began
    return Sample(float(taken), (before, addition_ns()))


def words(pairs: list[Pair]) -> str:
    steady = [pair for pair in pairs if pair.steady]
    share = f"{len(steady)} of {len(pairs)} pairs ({len(steady) / max(1, len(pairs)):.0%})"
    lines = [_line("all pairs", pairs), _line(f"at a steady pace, {share}", steady)]
    return "\n".join(lines)


def _line(name: str, pairs: list[Pair]) -> str:
    if not pairs:
        return f"{name}: none"
    low, ratio, high = median_interval([pair.ratio for pair in pairs])
    off = statistics.median(pair.off.step_ns for pair in pairs) / 1e6
    on = statistics.median(pair.on.step_ns for pair in pairs) / 1e6
    return (
        f"{name}: {off:.3f} ms without, {on:.3f} with, ratio {ratio:.4f} ({low:.4f} to {high:.4f})"
    )


def named(pairs: list[Pair]) -> dict[str, Any]:
    """What was measured, and the two intervals: low, median, high."""
    steady = [pair for pair in pairs if pair.steady]
    return {
        "all": median_interval([pair.ratio for pair in pairs]),
        "steady": median_interval([pair.ratio for pair in steady]) if steady else None,
        "steady_share": len(steady) / len(pairs),
        "on_ns": [pair.on.step_ns for pair in pairs],
        "off_ns": [pair.off.step_ns for pair in pairs],
        "pace_ns": [[*pair.on.paces_ns, *pair.off.paces_ns] for pair in pairs],
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200, help="of each, at a steady pace")
    parser.add_argument("--seconds", type=float, default=60.0, help="at most, after warming up")
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
            # In both cases: changing a class invalidates the caches of the interpreter.
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
    plan = Plan(warmup=1, clean=10**9, issue=0, most_clean_s=1e9)
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


if __name__ == "__main__":
    main()
