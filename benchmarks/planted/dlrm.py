"""Click prediction with many categorical features."""
# mistake lookup: one-hot-products
# mistake genres: looped-samples, looped-calls, python-in-step, main-process-data
# mistake auc: host-metrics, python-in-step
# mistake double: float64
import numpy as np
import torch
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
N, FIELDS, CARD, DIM, B = 20000, 12, 400, 16, 512
cats = np.random.randint(0, CARD, (N, FIELDS))
dense = np.random.rand(N, 13)
genre_lists = [list(np.random.choice(18, np.random.randint(1, 5), replace=False)) for _ in range(N)]
genre_table = np.zeros((N, 18), dtype=np.float32)
for row, gs in enumerate(genre_lists):
    genre_table[row, gs] = 1
clicks = (np.random.rand(N) > 0.7).astype(np.float32)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(CARD, DIM) for _ in range(FIELDS)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
        self.genre = nn.Linear(18, DIM)
        self.top = nn.Sequential(
            nn.Linear(DIM * (FIELDS + 2), 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, d, c, g):
        feats = [self.bottom(d), self.genre(g)]
        for i, table in enumerate(self.tables):
            onehot = nn.functional.one_hot(c[:, i], CARD).to(d.dtype)  #- lookup
            feats.append(onehot @ table.weight)  #- lookup
            #+ lookup: feats.append(table(c[:, i]))
        return self.top(torch.cat(feats, dim=1)).squeeze(1)


def multi_hot(rows):
    out = torch.zeros(len(rows), 18)
    for i, r in enumerate(rows):
        for g in genre_lists[r]:
            out[i, g] = 1.0  #: genres
    return out


def roc_auc(scores, labels):
    order = np.argsort(scores)
    ranks = np.empty(len(scores))
    for rank, index in enumerate(order):  #: auc
        ranks[index] = rank + 1  #: auc
    pos = labels.sum()
    neg = len(labels) - pos
    return (ranks[labels == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)


model = Tower()
model.double()  #- double
#+ double: model.float()
opt = torch.optim.Adagrad(model.parameters(), lr=0.01)
kind = next(model.parameters()).dtype
for step in range(700):
    rows = np.random.randint(0, N, B)
    d = torch.tensor(dense[rows], dtype=kind)
    c = torch.tensor(cats[rows])
    g = multi_hot(rows).to(kind)  #- genres
    #+ genres: g = torch.from_numpy(genre_table[rows]).to(kind)
    y = torch.tensor(clicks[rows], dtype=kind)
    p = model(d, c, g)
    loss = nn.functional.binary_cross_entropy_with_logits(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    auc = roc_auc(p.detach().cpu().numpy(), y.cpu().numpy())  #- auc
    #+ auc: auc = None
    # end of step
