"""A compiled sequence model on sentences of many lengths."""
# mistake shapes: recompilation

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.out = nn.Linear(64, 4)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return self.out(h.mean(1))


torch._dynamo.config.recompile_limit = 64
net = Net()
run = torch.compile(net, backend="aot_eager", dynamic=False)  #- shapes
#+ shapes: run = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(400):
    length = random.randint(8, 71)
    ids, y = torch.randint(0, 500, (16, length)), torch.randint(0, 4, (16,))
    loss = F.cross_entropy(run(ids), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
