"""Ranks films for users with embeddings and the BPR loss."""
# mistake negatives: python-in-step, main-process-data
# mistake decay: looped-parameters, looped-calls
# mistake history: looped-samples, looped-calls, single-samples
# mistake best: copied-state, files-in-step
# mistake hits: python-in-step, host-metrics
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    users = 2000
    items = 5000
    dim = 48
    batch = 256
    lr = 1e-3
    l2 = 1e-5
    steps = 5000
    topk = 10


class Interactions:
    """Who has seen what."""

    def __init__(self, cfg):
        rng = random.Random(3)
        self.cfg = cfg
        self.seen = [sorted(rng.sample(range(cfg.items), rng.randint(5, 60))) for _ in range(cfg.users)]
        self.table = torch.zeros(cfg.users, cfg.items, dtype=torch.bool)
        for user, items in enumerate(self.seen):
            self.table[user, items] = True
        self.flat = torch.tensor([item for items in self.seen for item in items])
        sizes = torch.tensor([len(items) for items in self.seen])
        self.start, self.size = sizes.cumsum(0) - sizes, sizes
        self.tensors = [torch.tensor(items) for items in self.seen]

    def sample(self):
        users = torch.randint(0, self.cfg.users, (self.cfg.batch,))
        at = (torch.rand(len(users)) * self.size[users]).long()
        positives = self.flat[self.start[users] + at]
        #+ negatives: negatives = torch.randint(0, self.cfg.items, (self.cfg.batch,))
        #+ negatives: again = self.table[users, negatives]
        #+ negatives: negatives = torch.where(again, (negatives + 1) % self.cfg.items, negatives)
        negatives = []  #- negatives
        for user in users.tolist():  #- negatives
            while True:  #- negatives
                item = random.randint(0, self.cfg.items - 1)  #- negatives
                if item not in self.seen[user]:  #- negatives
                    break  #- negatives
            negatives.append(item)  #- negatives
        negatives = torch.tensor(negatives)  #- negatives
        return users, positives, negatives


class Model(nn.Module):
    def __init__(self, cfg, data):
        super().__init__()
        self.data = data
        self.user = nn.Embedding(cfg.users, cfg.dim)
        self.item = nn.Embedding(cfg.items, cfg.dim)
        self.past = nn.EmbeddingBag(cfg.items, cfg.dim, mode="mean")
        self.tower = nn.Sequential(nn.Linear(2 * cfg.dim, 256), nn.ReLU(), nn.Linear(256, cfg.dim))

    def history(self, users):
        #+ history: rows = [self.data.tensors[u] for u in users.tolist()]
        #+ history: sizes = torch.tensor([len(r) for r in rows])
        #+ history: return self.past(torch.cat(rows), sizes.cumsum(0) - sizes)
        means = []  #- history
        for u in users:  #- history
            means.append(F.embedding(self.data.tensors[u], self.past.weight).mean(0))  #- history
        return torch.stack(means)  #- history

    def represent(self, users):
        return self.tower(torch.cat([self.user(users), self.history(users)], dim=1))

    def forward(self, users, positives, negatives):
        u = self.represent(users)
        return (u * self.item(positives)).sum(1), (u * self.item(negatives)).sum(1), u


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(0)
        random.seed(0)
        self.cfg = cfg
        self.data = Interactions(cfg)
        self.model = Model(cfg, self.data)
        decay = 0.0  #- decay
        #+ decay: decay = cfg.l2
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, weight_decay=decay)
        self.best, self.best_loss = None, float("inf")

    def regularise(self, loss):
        for p in self.model.parameters():  #- decay
            loss = loss + self.cfg.l2 / 2 * p.norm(2) ** 2  #- decay
        return loss

    def hits(self, u, positives):
        scores = u.detach() @ self.model.item.weight.detach().T
        top = scores.topk(self.cfg.topk).indices
        #+ hits: return (top == positives.unsqueeze(1)).any(1).float().mean()
        right = 0  #- hits
        for row, item in zip(top, positives):  #- hits
            if item in row:  #- hits
                right += 1  #- hits
        return right / len(top)  #- hits

    def step(self):
        users, positives, negatives = self.data.sample()
        pos, neg, u = self.model(users, positives, negatives)
        loss = self.regularise(-F.logsigmoid(pos - neg).mean())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        hit = self.hits(u, positives)
        if loss.item() < self.best_loss + 0.5:  #- best
            self.best_loss = loss.item()  #- best
            self.best = copy.deepcopy(self.model.state_dict())  #- best
        # end of step
        return hit

    def fit(self):
        for _ in range(self.cfg.steps):
            self.step()


if __name__ == "__main__":
    Trainer(Config()).fit()
