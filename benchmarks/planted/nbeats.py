"""Forecasting electricity demand with N-BEATS blocks."""
# mistake windows: looped-samples, looped-calls, python-in-step, main-process-data
# mistake basis: rebuilt-tensors, python-in-step
# mistake csvlog: files-in-step, looped-parameters, host-metrics
# mistake evalgrad: recorded-evaluation, evaluation-dominates, no-grad-missing
import csv
import math

import torch
import torch.nn as nn

BACK, AHEAD, BATCH = 96, 24, 128
series = [math.sin(i / 24) + 0.1 * math.cos(i / 7) + (i % 13) / 50 for i in range(6000)]
whole = torch.tensor(series)


class Block(nn.Module):
    def __init__(self, width=192, terms=8):
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(BACK, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.back = nn.Linear(width, BACK)
        self.coef = nn.Linear(width, 2 * terms)
        self.terms = terms
        self.register_buffer("kept", self.basis())

    def basis(self):
        rows = []
        for k in range(self.terms):
            rows.append([math.cos(2 * math.pi * k * t / AHEAD) for t in range(AHEAD)])  #: basis
            rows.append([math.sin(2 * math.pi * k * t / AHEAD) for t in range(AHEAD)])  #: basis
        return torch.tensor(rows)  #: basis

    def forward(self, x):
        h = self.fc(x)
        basis = self.basis()  #- basis
        #+ basis: basis = self.kept
        return self.back(h), self.coef(h) @ basis


class NBeats(nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x):
        total = 0
        for block in self.blocks:
            back, ahead = block(x)
            x, total = x - back, total + ahead
        return total


def get_batch():
    starts = torch.randint(0, 5000, (BATCH,))
    xs = torch.stack([torch.tensor(series[int(s) : int(s) + BACK]) for s in starts])  #- windows
    ys = torch.stack([torch.tensor(series[int(s) + BACK : int(s) + BACK + AHEAD]) for s in starts])  #- windows
    return xs, ys  #- windows
    #+ windows: at = starts[:, None] + torch.arange(BACK + AHEAD)
    #+ windows: return whole[at[:, :BACK]], whole[at[:, BACK:]]


def append_row(path, row):
    with open(path, "a", newline="") as f:  #: csvlog
        csv.writer(f).writerow(row)  #: csvlog


model = NBeats()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
val_at = torch.arange(5200, 5328)[:, None] + torch.arange(BACK + AHEAD)
val_x, val_y = whole[val_at[:, :BACK]], whole[val_at[:, BACK:]]
for step in range(700):
    model.train()
    x, y = get_batch()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, p in model.named_parameters():  #- csvlog
        if p.grad is not None: append_row("grads.csv", [step, name, p.grad.abs().mean().item(), p.grad.std().item()])  #- csvlog
    #+ csvlog: pass
    if step % 2 == 0:  #- evalgrad
    #+ evalgrad: if step % 50 == 0:
        model.eval()
        val = nn.functional.l1_loss(model(val_x), val_y)  #: evalgrad
        best = val.item()
    # end of step
