"""Forecasts sensor readings with a transformer.  python sensors.py --horizon 12"""
# mistake doubles: float64
# mistake windows: looped-samples, looped-calls, python-in-step, main-process-data
# mistake encoding: rebuilt-tensors, python-in-step
# mistake scaling: rebuilt-tensors, far-from-roof, unfused-operators
# mistake validate: evaluation-dominates
import argparse
import math

import numpy as np
import torch
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4000)
    return parser.parse_args()


def readings(channels, length=60_000):
    rng = np.random.default_rng(0)
    t = np.arange(length)[:, None]
    waves = np.sin(t / rng.uniform(5, 90, channels)) + 0.3 * rng.standard_normal((length, channels))
    return waves


class Forecaster(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.inp = nn.Linear(args.channels, args.dim)
        layer = nn.TransformerEncoderLayer(args.dim, 4, 2 * args.dim, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.out = nn.Linear(args.context * args.dim, args.horizon * args.channels)
        self.register_buffer("table", self.positions())

    def positions(self):
        rows = []
        for pos in range(self.args.context):
            row = []
            for i in range(self.args.dim):
                angle = pos / 10000 ** (2 * (i // 2) / self.args.dim)  #: encoding
                row.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))  #: encoding
            rows.append(row)
        return torch.tensor(rows)  #: encoding

    def forward(self, x):
        h = self.inp(x)
        h = h + self.positions().to(h)  #- encoding
        #+ encoding: h = h + self.table
        h = self.encoder(h)
        y = self.out(h.flatten(1))
        return y.view(len(x), self.args.horizon, self.args.channels)


class Data:
    def __init__(self, args):
        series = readings(args.channels)
        self.args = args
        self.series = torch.from_numpy(series)  #- doubles
        #+ doubles: self.series = torch.from_numpy(series).float()
        self.train, self.valid = self.series[:50_000], self.series[50_000:]
        self.mean, self.std = self.train.mean(0), self.train.std(0)
        self.wide = args.context + args.horizon
        self.views = self.train.unfold(0, self.wide, 1)

    def normal(self, x):
        mean, std = self.train.mean(0), self.train.std(0)  #- scaling
        #+ scaling: mean, std = self.mean, self.std
        return (x - mean) / std  #: scaling

    def batch(self):
        starts = torch.randint(0, len(self.train) - self.wide, (self.args.batch,))
        #+ windows: windows = self.views[starts].transpose(1, 2)
        rows = []  #- windows
        for s in starts:  #- windows
            rows.append(self.train[s : s + self.wide])  #- windows
        windows = torch.stack(rows)  #- windows
        windows = self.normal(windows)
        return windows[:, : self.args.context], windows[:, self.args.context :]

    def held_out(self):
        at = torch.arange(0, 640, 10)
        windows = self.valid.unfold(0, self.wide, 1)[at].transpose(1, 2)
        windows = (windows - self.mean) / self.std
        return windows[:, : self.args.context], windows[:, self.args.context :]


def validate(model, data):
    model.eval()
    with torch.no_grad():
        x, y = data.held_out()
        error = nn.functional.mse_loss(model(x), y).item()  #: validate
    model.train()
    return error


def main():
    args = parse()
    torch.manual_seed(0)
    data = Data(args)
    model = Forecaster(args)
    model = model.double()  #- doubles
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    best = math.inf
    for step in range(args.steps):
        x, y = data.batch()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        #+ validate: if step % 200 == 199:
        if step % 2 == 1:  #- validate
            best = min(best, validate(model, data))  #: validate
        # end of step


if __name__ == "__main__":
    main()
