"""Small scripts with one fault each: what `boundby run` predicts for fixing it, and the clock.

    python benchmarks/faults.py                      # all of them: predicted and measured, a table
    python benchmarks/faults.py compare FAULT...
    python benchmarks/faults.py step FAULT [fixed]  # one script; prints its median step in ms

Each is measured in fresh processes without a profiler, faulty and fixed in turn.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 3
STEPS = 60


def pageable_copies(fixed: bool) -> Callable[[], None]:
    """A batch of images for a small network."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = torch.randn(256 if device == "cuda" else 16, 3 * 224 * 224)
    batch = batch.pin_memory() if fixed and device == "cuda" else batch
    model = torch.nn.Sequential(torch.nn.Linear(3 * 224 * 224, 256), torch.nn.Linear(256, 10))
    return training(model.to(device), lambda: batch.to(device, non_blocking=fixed))


def zeroed_gradients(fixed: bool) -> Callable[[], None]:
    """Wide layers on few rows: most of the step is parameters and their gradients."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = 4096 if device == "cuda" else 512
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(12)]).to(device)
    x = torch.randn(256, width, device=device)
    return training(model, lambda: x, set_to_none=fixed)


def collector_pauses(fixed: bool) -> Callable[[], None]:
    """A collection of a large heap in every step."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    heap = [[number] for number in range(300_000)]
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).to(device)
    x = torch.randn(128, 512, device=device)
    train = training(model, lambda: x)

    def step() -> None:
        train()
        if not fixed:
            gc.collect()
        assert heap

    return step


def recompilation(fixed: bool) -> Callable[[], None]:
    """A print in every block, which ends one compiled region and begins another."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not fixed:
                print("", end="")
            return torch.nn.functional.gelu(self.inner(x))

    model = torch.nn.Sequential(*[Block() for _ in range(8)]).to(device)
    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "eager")
    x = torch.randn(64, 256, device=device)
    return training(compiled, lambda: x)


def logits_materialised(fixed: bool) -> Callable[[], None]:
    """The head of a language model, 8192 tokens and 50304 classes, under autocast."""
    import torch
    import torch.nn.functional as F

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, vocabulary = (8192, 50304) if device == "cuda" else (128, 10_000)
    head = torch.nn.Linear(1024, vocabulary, bias=False).to(device)
    hidden = torch.randn(tokens, 1024, device=device)
    targets = torch.randint(0, vocabulary, (tokens,), device=device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.float(), targets)

    loss_fn = torch.compile(loss_of) if fixed else loss_of

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            logits = head(hidden)
        loss_fn(logits, targets).backward()
        optimizer.step()

    return step


def wasteful_checkpointing(fixed: bool) -> Callable[[], None]:
    """Blocks that are run again in backward."""
    import torch
    from torch.utils.checkpoint import checkpoint

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, rows = (2048, 8192) if device == "cuda" else (512, 128)

    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU())
                for _ in range(8)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x) if fixed else checkpoint(block, x, use_reentrant=False)
            return x

    x = torch.randn(rows, width, device=device, requires_grad=True)
    return training(Checkpointed().to(device), lambda: x)


PLANTED = {
    "pageable-copies": pageable_copies,
    "zeroed-gradients": zeroed_gradients,
    "collector-pauses": collector_pauses,
    "recompilation": recompilation,
    "logits-materialised": logits_materialised,
    "wasteful-checkpointing": wasteful_checkpointing,
}


def training(
    model: Callable[..., object], batch: Callable[[], object], *, set_to_none: bool = True
) -> Callable[[], None]:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)  # type: ignore[attr-defined]

    def step() -> None:
        optimizer.zero_grad(set_to_none=set_to_none)
        model(batch()).square().mean().backward()  # type: ignore[attr-defined]
        optimizer.step()

    return step


def take_steps(fault: str, fixed: bool) -> None:
    """The script itself: its median step in ms, the device waited for at the end of ten."""
    import torch

    step = PLANTED[fault](fixed)
    samples = []
    for _ in range(STEPS // 10):
        began = time.perf_counter()
        for _ in range(10):
            step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        samples.append((time.perf_counter() - began) * 100)
    print(statistics.median(samples[2:]))


def measured(fault: str, fixed: bool) -> float:
    words = [sys.executable, __file__, "step", fault, *(["fixed"] if fixed else [])]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def predicted(fault: str) -> tuple[float, dict[str, float]]:
    """The clean step and what fixing the fault would save, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "diagnosis.json"
        options = ["run", "--quiet", "--json", str(target)]
        words = [sys.executable, "-m", "boundby", *options, __file__, "step", fault]
        subprocess.run(words, check=True, capture_output=True)
        diagnosis = json.loads(target.read_text())
    saving = {"low": 0.0, "expected": 0.0, "high": 0.0}
    for finding in diagnosis["findings"]:
        if finding["fault"] == fault:
            saving = {name: ns / 1e6 for name, ns in finding["saving_ns"].items()}
    return diagnosis["step"]["wall_ns"] / 1e6, saving


def compare(faults: list[str]) -> None:
    """One line a fault: before, after, saved, and the prediction beside it."""
    for fault in faults:
        clean, saving = predicted(fault)
        pairs = [(measured(fault, False), measured(fault, True)) for _ in range(ROUNDS)]
        before, after = (statistics.median(times) for times in zip(*pairs, strict=True))
        low, expected, high = (saving[name] for name in ("low", "expected", "high"))
        inside = "inside" if low <= before - after <= high else "outside"
        print(
            f"{fault:24} {before:8.2f} -> {after:8.2f} ms, saved {before - after:7.2f}; predicted "
            f"{expected:7.2f} ({low:.2f} to {high:.2f}) of {clean:.2f}: {inside}",
            flush=True,
        )


if __name__ == "__main__":
    verb, *rest = sys.argv[1:] or ["compare"]
    if verb == "step":
        take_steps(rest[0], "fixed" in rest)
    else:
        compare(rest or list(PLANTED))
