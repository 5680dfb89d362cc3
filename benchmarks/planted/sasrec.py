"""Recommends the next item of a session with self-attention."""
# mistake padding: padding
# mistake negatives: python-in-step, main-process-data
# mistake hit: host-metrics, python-in-step, looped-samples
# mistake popularity: python-in-step, rebuilt-tensors
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
ITEMS, USERS, DIM, MAX, BATCH = 5000, 3000, 64, 100, 64
SESSIONS = [
    [random.randrange(1, ITEMS) for _ in range(min(MAX, int(random.paretovariate(1.3) * 8)))]
    for _ in range(USERS)
]
SETS = [set(s) for s in SESSIONS]
ALL = [i for s in SESSIONS for i in s]
COUNTS = np.bincount(np.array(ALL), minlength=ITEMS)


class SASRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, padding_idx=0)
        self.positions = nn.Embedding(MAX, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 2, 128, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("causal", torch.triu(torch.ones(MAX, MAX, dtype=torch.bool), 1))

    def forward(self, ids):
        n = ids.shape[1]
        h = self.items(ids) + self.positions.weight[:n]
        return self.encoder(h, mask=self.causal[:n, :n], src_key_padding_mask=None)


def batch_of(users):
    sessions = [SESSIONS[u] for u in users]
    width = MAX  #- padding
    #+ padding: width = max(len(s) for s in sessions)
    ids = torch.zeros(len(users), width, dtype=torch.long)  #: padding
    for row, s in enumerate(sessions):
        ids[row, : len(s)] = torch.tensor(s)
    return ids


def sample_negatives(users, shape):
    out = np.zeros(shape, dtype=np.int64)
    for row, user in enumerate(users):  #: negatives
        for column in range(shape[1]):  #: negatives
            item = random.randrange(1, ITEMS)  #: negatives
            while item in SETS[user]:  #: negatives
                item = random.randrange(1, ITEMS)  #: negatives
            out[row, column] = item  #: negatives
    return torch.from_numpy(out)


def hit_rate(scores, truth, k=10):
    hits = 0
    for row in range(len(scores)):  #: hit
        ranked = sorted(range(ITEMS), key=lambda i: -scores[row][i])[:k]  #: hit
        hits += truth[row] in ranked  #: hit
    return hits / len(scores)


model = SASRec()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
order = sorted(range(USERS), key=lambda u: len(SESSIONS[u]))
batches = [order[i : i + BATCH] for i in range(0, USERS - BATCH, BATCH)]
for epoch in range(20):
    random.shuffle(batches)
    for users in batches:
        ids = batch_of(users)
        inputs, targets = ids[:, :-1], ids[:, 1:]
        negatives = sample_negatives(users, targets.shape)  #- negatives
        #+ negatives: negatives = torch.randint(1, ITEMS, targets.shape)
        counts = {}  #- popularity
        for item in ALL:  #- popularity
            counts[item] = counts.get(item, 0) + 1  #- popularity
        #+ popularity: counts = COUNTS
        hidden = model(inputs)
        pos = (hidden * model.items(targets)).sum(-1)
        neg = (hidden * model.items(negatives)).sum(-1)
        keep = targets > 0
        loss = -(F.logsigmoid(pos) + F.logsigmoid(-neg))[keep].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scores = hidden[:8, -1] @ model.items.weight.T
        rate = hit_rate(scores.tolist(), targets[:8, -1].tolist())  #- hit
        #+ hit: rate = (scores.topk(10).indices == targets[:8, -1:]).any(1).float().mean()
        # end of step
