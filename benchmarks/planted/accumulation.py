"""A language model with gradient accumulation."""
# mistake often: optimizer-too-often
# memory history: growing-memory
# mistake weights: rebuilt-tensors, python-in-step

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, ACCUMULATE = 2000, 4
CLASS_WEIGHTS = [1.0 / (1 + i % 7) for i in range(VOCAB)]
ready = torch.tensor(CLASS_WEIGHTS)
model = nn.Sequential(nn.Embedding(VOCAB, 256), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, VOCAB))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
history = []

for step in range(400):
    optimizer.zero_grad()
    for part in range(ACCUMULATE):
        x, y = torch.randint(0, VOCAB, (16,)), torch.randint(0, VOCAB, (16,))
        weight = torch.tensor([1.0 / (1 + i % 7) for i in range(VOCAB)])  #- weights
        #+ weights: weight = ready
        loss = F.cross_entropy(model(x), y, weight=weight) / ACCUMULATE
        loss.backward()
        optimizer.step()  #- often
    #+ often: optimizer.step()
    history.append(loss)  #- history
    #+ history: history.append(loss.item())
    smooth = sum(history) / len(history)  #- history
    #+ history: smooth = history[-1]
    # end of step
