"""A small denoising diffusion model with averaged weights."""
# mistake schedule: rebuilt-tensors, python-in-step
# mistake ema: looped-parameters
# mistake checkpoint: files-in-step

import copy
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
STEPS = 1000


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(STEPS, 128)
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(12))
        self.into, self.out = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x, t):
        h = self.into(x) + self.time(t)
        for layer in self.layers:
            h = h + F.silu(layer(h))
        return self.out(h)


def alphas():
    betas = [1e-4 + (0.02 - 1e-4) * i / (STEPS - 1) for i in range(STEPS)]  #: schedule
    kept, out = 1.0, []
    for beta in betas:
        kept *= 1 - beta  #: schedule
        out.append(kept)  #: schedule
    return torch.tensor(out)  #: schedule


ALPHAS = alphas()
model = Denoiser()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(2000, 64)
folder = tempfile.mkdtemp()

for step in range(500):
    x = data[torch.randint(0, 2000, (64,))]
    t = torch.randint(0, STEPS, (64,))
    kept = alphas()[t][:, None]  #- schedule
    #+ schedule: kept = ALPHAS[t][:, None]
    noise = torch.randn_like(x)
    noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
    loss = F.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters()):  #- ema
            mine.mul_(0.999).add_(theirs, alpha=0.001)  #- ema
        #+ ema: torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
    torch.save({"model": model.state_dict(), "ema": average.state_dict()}, f"{folder}/last.pt")  #- checkpoint
    # end of step
