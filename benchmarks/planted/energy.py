"""Forecasts electricity demand with a transformer encoder."""
# mistake windows: python-in-step, looped-samples, main-process-data
# mistake position: rebuilt-tensors
# mistake naive: unused-forward, no-grad-missing, repeated-forward
# mistake smape: host-metrics, python-in-step
import math
import random

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
random.seed(0)
CHANNELS, DIM, BATCH = 8, 64, 32
series = np.cumsum(np.random.RandomState(0).randn(20000, CHANNELS), axis=0).astype(np.float32)
tensor = torch.from_numpy(series)


def positional_encoding(length, dim):
    pe = torch.zeros(length, dim)  #: position
    for pos in range(length):  #: position
        for i in range(0, dim, 2):  #: position
            pe[pos, i] = math.sin(pos / 10000 ** (i / dim))  #: position
            pe[pos, i + 1] = math.cos(pos / 10000 ** (i / dim))  #: position
    return pe


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(DIM, 12 * CHANNELS)
        self.register_buffer("table", positional_encoding(96, DIM))

    def forward(self, x):
        h = self.embed(x) + positional_encoding(x.shape[1], DIM)  #- position
        #+ position: h = self.embed(x) + self.table[: x.shape[1]]
        return self.head(self.encoder(h)[:, -1]).view(-1, 12, CHANNELS)


def make_batch(length):
    starts = [random.randrange(0, len(series) - length - 12) for _ in range(BATCH)]
    #+ windows: rows = torch.tensor(starts)[:, None] + torch.arange(length + 12)
    #+ windows: both = tensor[rows]
    #+ windows: return both[:, :length], both[:, length:]
    xs, ys = [], []  #- windows
    for s in starts:  #- windows
        xs.append([[float(v) for v in series[t]] for t in range(s, s + length)])  #- windows
        ys.append([[float(v) for v in series[t]] for t in range(s + length, s + length + 12)])  #- windows
    return torch.tensor(xs), torch.tensor(ys)  #- windows


def smape(truth, guess):
    total, n = 0.0, 0
    for t, g in zip(truth.flatten().tolist(), guess.flatten().tolist()):  #: smape
        total += abs(t - g) / (abs(t) + abs(g) + 1e-8)  #: smape
        n += 1  #: smape
    return total / n


model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.HuberLoss()
for step in range(3000):
    length = random.choice([48, 72, 96])
    x, y = make_batch(length)
    x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3)
    guess = model(x)
    baseline = model(torch.zeros_like(x))  #- naive
    loss = loss_fn(guess, y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    score = smape(y, guess.detach())  #- smape
    #+ smape: score = ((y - guess).abs() / (y.abs() + guess.abs() + 1e-8)).mean().detach()
    # end of step
