"""Tabular regression with a held-out score after every step."""
# mistake validation: no-grad-missing
# mistake doubles: float64
# mistake create: retained-graph
# mistake norm: looped-parameters

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
table = np.random.default_rng(0).standard_normal((4000, 64))
x_all = torch.tensor(table)  #- doubles
#+ doubles: x_all = torch.tensor(table, dtype=torch.float32)
y_all = x_all[:, :1].sin() + x_all[:, 1:2]
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
model = model.to(x_all.dtype)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x_val, y_val = x_all[3500:], y_all[3500:]
scores = []

for step in range(500):
    at = torch.randint(0, 3500, (256,))
    loss = (model(x_all[at]) - y_all[at]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(create_graph=True)  #- create
    #+ create: loss.backward()
    for p in model.parameters():  #- norm
        norm = float(p.grad.detach().pow(2).sum().sqrt())  #- norm
        if norm > 1.0:  #- norm
            p.grad.data.mul_(1.0 / norm)  #- norm
    #+ norm: pass
    optimizer.step()
    held_out = (model(x_val) - y_val).abs().mean()  #- validation
    #+ validation: held_out = (torch.no_grad()(model)(x_val) - y_val).abs().mean()
    scores.append(held_out.item())
    # end of step
