"""Dense retrieval: hard negatives are found by searching the whole index in every step."""
# mistake sort: python-in-step, host-metrics, main-process-data

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
PASSAGES, B = 6000, 16
encoder = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 64))
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4)
passages, questions = torch.randn(PASSAGES, 128), torch.randn(2000, 128)
index = F.normalize(encoder(passages), dim=-1).detach()
for step in range(400):
    at = torch.randint(0, 2000, (B,))
    q = F.normalize(encoder(questions[at]), dim=-1)
    scores = q.detach() @ index.T
    nearest = torch.from_numpy(np.argsort(-scores.numpy(), axis=1)[:, :8].copy())  #- sort
    #+ sort: nearest = scores.topk(8).indices
    wrong = F.normalize(encoder(passages[nearest.flatten()]), dim=-1).view(B, 8, -1)
    right = F.normalize(encoder(passages[at]), dim=-1)
    logits = torch.cat([(q * right).sum(-1, keepdim=True), torch.einsum("bd,bkd->bk", q, wrong)], 1)
    loss = F.cross_entropy(logits / 0.05, torch.zeros(B, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
