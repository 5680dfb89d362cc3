"""A step that a fresh process can import."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), fused=False, foreach=False)


def train(rows: int) -> float:
    loss = model(torch.ones(rows, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss)
