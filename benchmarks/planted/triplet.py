"""Triplet network on sketches."""
# mistake mining: host-metrics, python-in-step, looped-samples
# mistake acc: repeated-forward
# mistake ema: looped-parameters
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(1)
torch.manual_seed(1)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.b1 = nn.BatchNorm2d(16)
        self.c2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.b2 = nn.BatchNorm2d(32)
        self.c3 = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.b3 = nn.BatchNorm2d(64)
        self.fc = nn.Linear(64 * 16, 64)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        x = F.relu(self.b3(self.c3(x)))
        return F.normalize(self.fc(x.flatten(1)))


labels = torch.arange(400) % 20
sketches = torch.rand(400, 1, 32, 32) + labels.view(-1, 1, 1, 1) / 20
model = Embedder()
shadow = copy.deepcopy(model)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
triplet = nn.TripletMarginLoss(0.3)


def hardest(emb, lab):
    """For each sample the farthest positive and the nearest negative."""
    pos, neg = [], []
    for i in range(len(emb)):
        best_p, best_n, p_at, n_at = -1.0, 1e9, i, i
        for j in range(len(emb)):
            if i == j:
                continue
            d = dist[i][j]  #: mining
            if lab[i] == lab[j] and d > best_p:  #: mining
                best_p, p_at = d, j
            elif lab[i] != lab[j] and d < best_n:  #: mining
                best_n, n_at = d, j
        pos.append(p_at)
        neg.append(n_at)
    return torch.tensor(pos), torch.tensor(neg)


def hardest_fast(emb, lab):
    same = lab[:, None] == lab[None]
    d = torch.cdist(emb, emb)
    return d.masked_fill(~same, -1).argmax(1), d.masked_fill(same, 1e9).argmin(1)


@torch.no_grad()
def update(decay=0.99):
    new = {}
    for k, v in model.state_dict().items():
        old = shadow.state_dict()[k]  #: ema
        new[k] = old * decay + v * (1 - decay) if v.dtype.is_floating_point else v  #: ema
    shadow.load_state_dict(new)  #: ema


@torch.no_grad()
def update_fast(decay=0.99):
    torch._foreach_lerp_(shadow_params, model_params, 1 - decay)


shadow_params, model_params = list(shadow.parameters()), list(model.parameters())
for it in range(600):
    idx = torch.randint(0, 400, (64,))
    x, y = sketches[idx], labels[idx]
    e = model(x)
    dist = torch.cdist(e.detach(), e.detach()).tolist()  #- mining
    #+ mining: pass
    p, n = hardest(e, y.tolist())  #- mining
    #+ mining: p, n = hardest_fast(e.detach(), y)
    loss = triplet(e, e[p], e[n])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    update()  #- ema
    #+ ema: update_fast()
    with torch.no_grad():  #- acc
        again = model(x)  #- acc
        near = torch.cdist(again, again).fill_diagonal_(9).argmin(1)  #- acc
    #+ acc: near = torch.cdist(e.detach(), e.detach()).fill_diagonal_(9).argmin(1)
    recall = (y[near] == y).float().mean()
    if it % 50 == 0:
        print(it, float(loss), float(recall))
    # end of step
