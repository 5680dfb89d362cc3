"""Matrix factorisation with side features."""
# mistake onehot: one-hot-products
# mistake norms: looped-parameters
# mistake metrics: python-in-step, host-metrics, looped-samples, looped-calls

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
USERS, ITEMS, WIDTH = 3000, 1500, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Linear(USERS, WIDTH, bias=False)
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.tower = nn.ModuleList(nn.Linear(2 * WIDTH, 2 * WIDTH) for _ in range(8))
        self.out = nn.Linear(2 * WIDTH, 1)

    def forward(self, user, item):
        u = self.users(F.one_hot(user, USERS).float())  #- onehot
        #+ onehot: u = F.embedding(user, self.users.weight.t())
        h = torch.cat([u, self.items(item)], 1)
        for layer in self.tower:
            h = F.relu(layer(h))
        return self.out(h).squeeze(1)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
hits = 0
for step in range(500):
    user, item = torch.randint(0, USERS, (256,)), torch.randint(0, ITEMS, (256,))
    y = torch.randint(0, 2, (256,)).float()
    logits = model(user, item)
    loss = F.binary_cross_entropy_with_logits(logits, y)
    optimizer.zero_grad()
    loss.backward()
    norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5  #- norms
    #+ norms: norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    optimizer.step()
    for i in range(len(y)):  #- metrics
        hits += int((logits[i].item() > 0) == (y[i].item() > 0.5))  #- metrics
    #+ metrics: hits += ((logits > 0) == (y > 0.5)).sum()
    # end of step
