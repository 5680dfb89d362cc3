"""Contrastive learning of two views."""
# mistake pairs: looped-samples, looped-calls
# mistake prototypes: rebuilt-tensors
# mistake once: repeated-forward

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(192, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 64))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
data = torch.randn(2000, 192)
prototypes = torch.randn(3000, 64)
units = F.normalize(prototypes, dim=1)
B = 64
same = torch.arange(B)

for step in range(500):
    x = data[torch.randint(0, 2000, (B,))]
    one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    a, b = F.normalize(encoder(one), dim=1), F.normalize(encoder(two), dim=1)
    positives = torch.stack([torch.dot(a[i], b[i]) for i in range(B)])  #- pairs
    #+ pairs: positives = (a * b).sum(1)
    negatives = F.normalize(encoder(two), dim=1)  #- once
    #+ once: negatives = b
    centres = F.normalize(prototypes, dim=1)  #- prototypes
    #+ prototypes: centres = units
    near = (a @ centres.t()).logsumexp(1).mean()
    loss = F.cross_entropy(a @ negatives.t() / 0.1, same) - positives.mean() + 0.01 * near
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
