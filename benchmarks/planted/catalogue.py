"""Answers requests with products of a catalogue that look like a picture, and watches its quality."""
# mistake grads: no-grad-missing
# mistake eight: rebuilt-tensors, repeated-casts, python-in-step
# mistake bank: rebuilt-tensors, repeated-forward
# mistake single: looped-samples, single-samples, looped-calls
# mistake recall: host-metrics, python-in-step, looped-calls

import bisect
import collections
import logging
import time

import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("catalogue")


class QuantisedLinear(nn.Module):
    """Weights are kept in eight bits, so that the image of the service is small."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("packed", (linear.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("bias", linear.bias.detach().clone())
        #+ eight: self.weight = self.packed.float() * self.scale

    @property  #- eight
    def weight(self):  #- eight
        return self.packed.float() * self.scale  #- eight

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)  #: eight


class Stage(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.SiLU(),
            nn.Conv2d(b, b, 3, padding=1, groups=b), nn.BatchNorm2d(b), nn.SiLU(), nn.Conv2d(b, b, 1),
        )


class Embedder(nn.Module):
    def __init__(self, dim=256, hidden=1536):
        super().__init__()
        self.stages = nn.Sequential(Stage(3, 24), Stage(24, 48), Stage(48, 96), Stage(96, 160))
        self.project = nn.Sequential(
            QuantisedLinear(nn.Linear(160, hidden)), nn.GELU(),
            QuantisedLinear(nn.Linear(hidden, hidden)), nn.GELU(),
            QuantisedLinear(nn.Linear(hidden, dim)),
        )

    def forward(self, x):
        return self.project(self.stages(x).mean((2, 3)))


class Catalogue:
    def __init__(self, features, names):
        self.features, self.names = features, names
        #+ bank: self.unit = F.normalize(features, dim=-1)

    @property  #- bank
    def unit(self):  #- bank
        return F.normalize(self.features, dim=-1)  #- bank

    def search(self, queries, k):
        found = (F.normalize(queries, dim=-1) @ self.unit.T).topk(k)  #: bank
        return found.values, found.indices


class Quality:
    """Recall and mean rank over the last requests whose answer is known."""

    def __init__(self, window=400):
        self.answers = collections.deque(maxlen=window)

    def add(self, indices, truth):
        for row, right in zip(indices, truth):
            self.answers.append((row.tolist(), int(right)))

    def report(self, cuts=(1, 3, 5, 10, 20, 50)):
        out = {f"recall@{k}": sum(right in row[:k] for row, right in self.answers) / len(self.answers) for k in cuts}  #: recall
        ranks = sorted(row.index(right) if right in row else len(row) for row, right in self.answers)  #: recall
        out["mrr"] = sum(1 / (1 + rank) for rank in ranks) / len(ranks)
        out["ece"] = self.spread(ranks)  #: recall
        return out

    def spread(self, ranks):
        """How the ranks are spread, in tenths."""
        return [bisect.bisect(ranks, tenth * 5) / len(ranks) for tenth in range(11)]


class Service:
    def __init__(self, model, catalogue, top=50):
        self.model, self.catalogue, self.top = model.eval(), catalogue, top
        self.quality, self.times = Quality(), collections.deque(maxlen=1000)
        self.served = 0

    #+ grads: @torch.no_grad()
    def embed(self, pictures):
        return torch.cat([self.model(picture[None]) for picture in pictures])  #- single
        #+ single: return self.model(torch.stack(list(pictures)))  #: grads

    def handle(self, request):
        began = time.perf_counter()
        pictures = [self.prepare(picture) for picture in request["pictures"]]
        scores, found = self.catalogue.search(self.embed(pictures), self.top)  #: grads
        response = [
            {"ids": row.tolist(), "scores": [round(s, 4) for s in score.tolist()]}
            for row, score in zip(found, scores)
        ]
        self.quality.add(found, request["answers"])
        self.served += 1
        #+ recall: if self.served % 50 == 0: self.health()
        self.health()  #- recall
        self.times.append(time.perf_counter() - began)
        return response

    def prepare(self, picture):
        return (picture.float() / 255 - 0.5) / 0.25

    def health(self):
        log.debug("quality %s", self.quality.report())


def requests(count, size=72, pictures=10, products=20000):
    pool = torch.randint(0, 256, (64, 3, size, size), dtype=torch.uint8)
    for _ in range(count):
        chosen = torch.randint(0, len(pool), (pictures,))
        yield {"pictures": list(pool[chosen]), "answers": torch.randint(0, products, (pictures,))}


def serve():
    torch.manual_seed(0)
    catalogue = Catalogue(torch.randn(20000, 256), [f"p{i}" for i in range(20000)])
    service = Service(Embedder(), catalogue)
    for request in requests(800):
        service.handle(request)
        # end of step


if __name__ == "__main__":
    serve()
