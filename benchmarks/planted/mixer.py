"""A trainer with callbacks, for an MLP-Mixer on small pictures."""
# mistake ema: looped-parameters, copied-state
# mistake checkpoint: files-in-step, checkpoint-dominates
# mistake accuracy: repeated-forward, no-grad-missing, evaluation-dominates
# mistake watch: looped-parameters, host-metrics, python-in-step
# mistake debug: anomaly-detection
# memory losses: growing-memory

import collections
import copy
import functools
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class MixerBlock(nn.Module):
    def __init__(self, patches, dim):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 128), nn.GELU(), nn.Linear(128, patches))
        self.channels = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self, classes=20, dim=96, depth=4, patch=4, size=32):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, dim) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Callback:
    def on_fit_start(self, trainer): ...
    def on_backward_end(self, trainer): ...
    def on_batch_end(self, trainer): ...


class ExponentialAverage(Callback):
    def __init__(self, decay=0.999):
        self.decay, self.average = decay, {}

    def on_fit_start(self, trainer):
        self.average = copy.deepcopy(trainer.model.state_dict())

    def on_batch_end(self, trainer):
        #+ ema: with torch.no_grad(): torch._foreach_lerp_(list(self.average.values()), list(trainer.model.state_dict().values()), 1 - self.decay)
        now = copy.deepcopy(trainer.model.state_dict())  #- ema
        self.average = {  #- ema
            k: self.decay * v + (1 - self.decay) * now[k] for k, v in self.average.items()  #- ema
        }  #- ema


class Checkpoint(Callback):
    """Keeps the best and every so often the last."""

    def __init__(self, folder, times=1000):
        self.folder, self.times, self.best = Path(folder), times, float("inf")

    def on_fit_start(self, trainer):
        self.every = trainer.steps // self.times or 1  #- checkpoint
        #+ checkpoint: self.every = 250

    def on_batch_end(self, trainer):
        if trainer.step % self.every == 0:
            state = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
            torch.save(state, self.folder / "last.pt")  #: checkpoint


class GradientWatcher(Callback):
    """Shapes of the gradients' distributions, for the dashboard."""

    def __init__(self, every=100):
        self.every, self.rows = every, collections.deque(maxlen=200)

    def describe(self, p):
        g = p.grad.flatten()
        return {"mean": g.mean().item(), "std": g.std().item(), "p99": g.abs().kthvalue(int(0.99 * g.numel()) or 1)[0].item()}  #: watch

    def on_backward_end(self, trainer):
        #+ watch: if trainer.step % self.every: return
        self.rows.append({n: self.describe(p) for n, p in trainer.model.named_parameters()})  #: watch


class Progress(Callback):
    def __init__(self):
        self.losses, self.line = [], ""

    def on_batch_end(self, trainer):
        self.losses.append(trainer.loss)  #- losses
        #+ losses: self.losses.append(trainer.loss.item())
        accuracy = trainer.batch_accuracy  #: accuracy
        self.line = f"step {trainer.step} loss {float(trainer.loss):.3f} accuracy {accuracy:.3f}"


def guarded(function):
    """Stops where the first NaN appears."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        with torch.autograd.set_detect_anomaly(True):  #- debug
        #+ debug: with torch.enable_grad():
            return function(*args, **kwargs)  #: debug

    return run


class Trainer:
    def __init__(self, model, optimizer, callbacks, steps):
        self.model, self.optimizer, self.steps = model, optimizer, steps
        self.callbacks, self.step = callbacks, 0
        self.loss = self.batch = self.logits = None

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)  #: ema

    @property
    def batch_accuracy(self):
        x, y = self.batch
        hits = self.model(x).argmax(-1) == y  #- accuracy
        #+ accuracy: hits = self.logits.argmax(-1) == y
        return hits.float().mean().item()

    @guarded
    def training_step(self):
        x, y = self.batch
        self.logits = self.model(x)
        self.loss = F.cross_entropy(self.logits, y, label_smoothing=0.1)
        self.optimizer.zero_grad()
        self.loss.backward()
        self.emit("on_backward_end")
        self.optimizer.step()

    def fit(self, pictures, labels, batch=32):
        self.emit("on_fit_start")
        for self.step in range(self.steps):
            chosen = torch.randint(0, len(labels), (batch,))
            self.batch = pictures[chosen], labels[chosen]
            self.training_step()
            self.emit("on_batch_end")
            # end of step


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    callbacks = [ExponentialAverage(), Checkpoint(tempfile.mkdtemp()), GradientWatcher(), Progress()]
    trainer = Trainer(model, optimizer, callbacks, steps=800)
    trainer.fit(torch.randn(1500, 3, 32, 32), torch.randint(0, 20, (1500,)))
