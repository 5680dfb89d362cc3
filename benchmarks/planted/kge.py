"""RotatE on a toy knowledge graph, with self-adversarial negatives.  python kge.py --dim 64"""
# mistake corrupt: python-in-step, main-process-data, waiting-for-data
# mistake frequency: python-in-step, rebuilt-tensors, main-process-data
# mistake each: looped-calls, looped-samples
# mistake ranks: python-in-step, host-metrics, looped-samples, looped-calls, evaluation-dominates
# mistake dense: dense-tables, zeroed-gradients, unfused-optimizer
import argparse
import collections
import random

import torch
import torch.nn.functional as F
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--entities", type=int, default=12000)
p.add_argument("--relations", type=int, default=40)
p.add_argument("--triples", type=int, default=30000)
p.add_argument("--dim", type=int, default=32)
p.add_argument("--batch", type=int, default=256)
p.add_argument("--negatives", type=int, default=24)
p.add_argument("--margin", type=float, default=9.0)
p.add_argument("--steps", type=int, default=4000)
args = p.parse_args()


def make_graph():
    rng = random.Random(0)
    seen = set()
    while len(seen) < args.triples:
        h = int(args.entities * rng.random() ** 2)
        r = rng.randrange(args.relations)
        seen.add((h, r, (h * 7 + r * 13 + rng.randrange(30)) % args.entities))
    triples = sorted(seen)
    rng.shuffle(triples)
    return triples[:-500], triples[-500:]


class TrainSet:
    def __init__(self, triples):
        self.triples = triples
        self.known = set(triples)
        self.tails = collections.defaultdict(set)
        self.count = collections.Counter()
        for h, r, t in triples:
            self.tails[h, r].add(t)
            self.count[h, r] += 1
            self.count[t, -r - 1] += 1
        self.tensor = torch.tensor(triples)
        #+ frequency: self.weights = torch.tensor([self.weight(*triple) for triple in triples])

    def weight(self, h, r, t):
        """Word2vec-like subsampling of frequent queries."""
        return (self.count[h, r] + self.count[t, -r - 1] + 4) ** -0.5  #: frequency

    def corrupt(self, h, r):
        """Tails that are no fact."""
        wrong = []  #- corrupt
        while len(wrong) < args.negatives:  #- corrupt
            t = random.randrange(args.entities)  #- corrupt
            if (h, r, t) not in self.known:  #- corrupt
                wrong.append(t)  #- corrupt
        return wrong  #- corrupt

    def batch(self):
        picked = torch.randint(0, len(self.triples), (args.batch,))
        positive = self.tensor[picked]
        #+ corrupt: negative = torch.randint(0, args.entities, (args.batch, args.negatives))
        negative = torch.tensor([self.corrupt(h, r) for h, r, _ in positive.tolist()])  #- corrupt
        #+ frequency: weights = self.weights[picked]
        weights = torch.tensor([self.weight(h, r, t) for h, r, t in positive.tolist()])  #- frequency
        return positive, negative, weights


class RotatE(nn.Module):
    def __init__(self):
        super().__init__()
        sparse = True
        sparse = False  #- dense
        self.entity = nn.Embedding(args.entities, 2 * args.dim, sparse=sparse)
        self.phase = nn.Embedding(args.relations, args.dim)
        nn.init.uniform_(self.entity.weight, -0.3, 0.3)
        nn.init.uniform_(self.phase.weight, -3.14, 3.14)

    def rotate(self, h, r):
        re, im = self.entity(h).chunk(2, dim=-1)  #: dense
        a = self.phase(r)
        cos, sin = torch.cos(a), torch.sin(a)
        return re * cos - im * sin, re * sin + im * cos

    def distance(self, moved, t):
        """To one tail (B) or several (B, N)."""
        re, im = self.entity(t).chunk(2, dim=-1)  #: dense+each
        if t.dim() == 2:
            moved = [part.unsqueeze(1) for part in moved]
        re, im = moved[0] - re, moved[1] - im
        return (re**2 + im**2 + 1e-9).sqrt().sum(-1)  #: each

    def forward(self, positive, negative):
        moved = self.rotate(positive[:, 0], positive[:, 1])
        right = args.margin - self.distance(moved, positive[:, 2])
        #+ each: wrong = args.margin - self.distance(moved, negative)
        wrong = []  #- each
        for k in range(negative.shape[1]):  #- each
            wrong.append(args.margin - self.distance(moved, negative[:, k]))  #- each
        wrong = torch.stack(wrong, dim=1)  #- each
        return right, wrong


@torch.no_grad()
def mean_reciprocal_rank(model, data, triples):
    """Filtered: other known tails do not count."""
    #+ ranks: rows, cols = data.others
    #+ ranks: moved = model.rotate(triples[:, 0], triples[:, 1])
    #+ ranks: d = torch.stack([model.distance((a, b), data.all_tails) for a, b in zip(*moved)])
    #+ ranks: own = d.gather(1, triples[:, 2:])
    #+ ranks: d[rows, cols] = float("inf")
    #+ ranks: return (1 / (1 + (d < own).sum(1))).mean().item()
    total = 0.0  #- ranks
    for h, r, t in triples.tolist():  #- ranks
        d = model.distance(model.rotate(torch.tensor([h]), torch.tensor([r])), torch.arange(args.entities))  #- ranks
        order = d.argsort().tolist()  #- ranks
        order = [e for e in order if e == t or e not in data.tails[h, r]]  #- ranks
        total += 1 / (1 + order.index(t))  #- ranks
    return total / len(triples)  #- ranks


def main():
    torch.manual_seed(0)
    train, valid = make_graph()
    data, model = TrainSet(train), RotatE()
    probe = torch.tensor(valid[:8])
    data.all_tails = torch.arange(args.entities)
    others = [(i, t) for i, (h, r, own) in enumerate(valid[:8]) for t in data.tails[h, r] if t != own]
    data.others = torch.tensor(others or [(0, 0)]).T
    optimizers = [torch.optim.SparseAdam([model.entity.weight], 1e-3), torch.optim.Adam([model.phase.weight], 1e-3)]
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3)]  #- dense
    for step in range(args.steps):
        positive, negative, weights = data.batch()
        right, wrong = model(positive, negative)
        attention = F.softmax(wrong.detach(), dim=1)
        loss = -(weights * F.logsigmoid(right)).sum() - (weights * (attention * F.logsigmoid(-wrong)).sum(1)).sum()
        loss = loss / (2 * weights.sum())
        for o in optimizers:
            o.zero_grad()
        loss.backward()  #: dense
        for o in optimizers:
            o.step()  #: dense
        if step % 5 == 0:
            mrr = mean_reciprocal_rank(model, data, probe)  #: ranks
        # end of step
        if step % 200 == 0:
            print(step, round(loss.item(), 4), round(mrr, 4))


main()
