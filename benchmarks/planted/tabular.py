"""Churn prediction from rows of a CSV file with a residual MLP."""
# mistake parse: main-process-data, waiting-for-data, python-in-step
# mistake report: host-metrics, python-in-step
# mistake batchnorm: modules-made, python-in-step, rebuilt-tensors
# mistake scaler: python-in-step, rebuilt-tensors, main-process-data
import csv
import io
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)
COLUMNS, ROWS, CLASSES, BATCH = 40, 6000, 6, 256
LINES = [
    ",".join([f"{random.gauss(0, 1):.5f}" for _ in range(COLUMNS)] + [str(random.randrange(CLASSES))])
    for _ in range(ROWS)
]


def parse(line):
    row = next(csv.reader(io.StringIO(line)))  #: parse
    values = [float(v) if v else 0.0 for v in row[:-1]]  #: parse
    return torch.tensor(values), int(row[-1])  #: parse


TABLE = [parse(line) for line in LINES]
MATRIX = np.stack([x.numpy() for x, _ in TABLE])


class Churn(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return parse(LINES[index])  #- parse
        #+ parse: return TABLE[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.act = nn.ReLU()

    def forward(self, x):
        h = self.act(self.first(x))
        out = nn.Sequential(nn.Linear(x.shape[1], x.shape[1]), nn.Dropout(0.1))(h)  #- batchnorm
        #+ batchnorm: out = nn.functional.dropout(self.second(h), 0.1)
        return self.norm(x + out)


def classification_report(truth, guess):
    lines = []
    for c in range(CLASSES):
        tp = sum(1 for t, g in zip(truth, guess) if t == c and g == c)  #: report
        fp = sum(1 for t, g in zip(truth, guess) if t != c and g == c)  #: report
        fn = sum(1 for t, g in zip(truth, guess) if t == c and g != c)  #: report
        precision = tp / max(1, tp + fp)
        recall = tp / max(1, tp + fn)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        lines.append(f"{c} {precision:.3f} {recall:.3f} {f1:.3f}")
    return "\n".join(lines)


model = nn.Sequential(
    nn.Linear(COLUMNS, 256), Block(256), nn.ReLU(), Block(256), nn.ReLU(), nn.Linear(256, CLASSES)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
loader = DataLoader(Churn(), batch_size=BATCH, shuffle=True, drop_last=True)
mean, std = torch.from_numpy(MATRIX.mean(0)), torch.from_numpy(MATRIX.std(0))
for epoch in range(40):
    for x, y in loader:
        mean = torch.tensor(np.mean(MATRIX, axis=0))  #- scaler
        std = torch.tensor(np.std(MATRIX, axis=0))  #- scaler
        x = (x - mean) / std
        logits = model(x)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = logits.argmax(1)
        report = classification_report(y.tolist(), guess.tolist())  #- report
        #+ report: accuracy = (guess == y).float().mean()
        # end of step
    print(epoch, loss.item())
