"""An autoencoder under much monitoring: the best weights are kept, gradients are counted in bins."""
# mistake best: copied-state, python-in-step
# mistake bins: host-metrics, python-in-step, looped-parameters

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
sizes = [256, 192, 96, 32, 96, 192, 256]
layers = []
for wide, narrow in zip(sizes, sizes[1:]):
    layers += [nn.Linear(wide, narrow), nn.LayerNorm(narrow), nn.GELU()]
model = nn.Sequential(*layers[:-2])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(2000, 256)
best, kept, history = 1e9, None, []
for step in range(500):
    x = data[torch.randint(0, 2000, (64,))]
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():  #- bins
        counts, edges = np.histogram(p.grad.numpy(), bins=64)  #- bins
        history = [(name, counts, edges), *history[:100]]  #- bins
    #+ bins: pass
    optimizer.step()
    kept = copy.deepcopy(model.state_dict())  #- best
    #+ best: pass
    # end of step
