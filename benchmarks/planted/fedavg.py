"""Federated averaging over simulated hospitals, with a proximal term (FedProx)."""
# mistake clone: copied-state, modules-made
# mistake proximal: looped-parameters, looped-calls
# mistake fetch: looped-samples, main-process-data, python-in-step, waiting-for-data
# mistake average: looped-parameters, copied-state
# mistake global_: no-grad-missing, recorded-evaluation, evaluation-dominates
# mistake audit: files-in-step, python-in-step, looped-parameters, host-metrics
import copy
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    hospitals: int = 8
    local_steps: int = 4
    rounds: int = 400
    batch: int = 32
    lr: float = 0.05
    mu: float = 0.01
    classes: int = 6


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv1d(c, c, 5, padding=2), nn.Conv1d(c, c, 5, padding=2)
        self.na, self.nb = nn.GroupNorm(4, c), nn.GroupNorm(4, c)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


class EcgNet(nn.Module):
    def __init__(self, classes, width=24, depth=4):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[ResBlock(width) for _ in range(depth)])
        self.head = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, classes))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(-1))


class Records(torch.utils.data.Dataset):
    """Two leads, 128 samples, standardised on access."""

    def __init__(self, n, classes, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, classes, (n,), generator=g)
        t = torch.linspace(0, 6.28, 128)
        wave = torch.sin(t * (self.y[:, None] + 1))
        self.x = wave[:, None] + 0.5 * torch.randn(n, 2, 128, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), self.y[i]  #: fetch


class Hospital:
    def __init__(self, name, records, settings):
        self.name, self.records, self.s = name, records, settings
        self.test = [records[i] for i in range(64)]
        self.test = torch.stack([x for x, _ in self.test]), torch.stack([y for _, y in self.test])
        self.model = None

    def sample(self):
        idx = torch.randint(64, len(self.records), (self.s.batch,))
        #+ fetch: return self.records[idx]
        items = [self.records[int(i)] for i in idx]  #- fetch
        return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])  #- fetch

    def receive(self, server_model):
        self.model = copy.deepcopy(server_model)  #- clone
        #+ clone: if self.model is None: self.model = copy.deepcopy(server_model)
        #+ clone: with torch.no_grad(): torch._foreach_copy_(list(self.model.parameters()), list(server_model.parameters()))

    def proximal(self, model, server_model):  #- proximal
        term = 0.0  #- proximal
        for mine, theirs in zip(model.parameters(), server_model.parameters()):  #- proximal
            term = term + torch.norm(mine - theirs.detach()) ** 2  #- proximal
        return self.s.mu / 2 * term  #- proximal

    def train(self, server_model):
        self.receive(server_model)  #: clone
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.s.lr)
        for _ in range(self.s.local_steps):
            x, y = self.sample()  #: fetch
            loss = F.cross_entropy(self.model(x), y)
            loss = loss + self.proximal(self.model, server_model)  #- proximal
            optimizer.zero_grad()
            loss.backward()  #: proximal
            #+ proximal: pull = torch._foreach_sub([p.detach() for p in self.model.parameters()], [p.detach() for p in server_model.parameters()])
            #+ proximal: torch._foreach_add_([p.grad for p in self.model.parameters()], pull, alpha=self.s.mu)
            optimizer.step()
            self.audit(loss)  #- audit
            # end of step
        #+ audit: self.audit(loss)
        return self.model.state_dict()

    def audit(self, loss):
        """A tamper-proof trace of what was trained."""
        digest = hashlib.sha256()
        for value in self.model.state_dict().values():
            digest.update(value.numpy().tobytes())  #: audit
        line = json.dumps({"site": self.name, "loss": loss.item(), "weights": digest.hexdigest()})
        with open(AUDIT, "a") as f:
            f.write(line + "\n")  #: audit
            f.flush()
            os.fsync(f.fileno())  #: audit


class Server:
    def __init__(self, model, hospitals):
        self.model, self.hospitals = model, hospitals

    def average(self, states, sizes):
        total = sum(sizes)
        #+ average: mean = dict(states[0])
        #+ average: names = list(mean)
        #+ average: acc = torch._foreach_mul(list(states[0].values()), sizes[0] / total)
        #+ average: for state, n in zip(states[1:], sizes[1:]): torch._foreach_add_(acc, list(state.values()), alpha=n / total)
        #+ average: mean = dict(zip(names, acc))
        mean = {k: torch.zeros_like(v) for k, v in states[0].items()}  #- average
        for name in mean:  #- average
            for state, n in zip(states, sizes):  #- average
                mean[name] = mean[name] + state[name].clone() * torch.tensor(n / total)  #- average
        self.model.load_state_dict(mean)

    #+ global_: @torch.no_grad()
    def evaluate(self):
        right = 0
        for h in self.hospitals:
            x, y = h.test
            right += (self.model(x).argmax(1) == y).sum().item()  #: global_
        return right / (64 * len(self.hospitals))


AUDIT = os.path.join(tempfile.mkdtemp(), "audit.jsonl")


def main():
    s = Settings()
    torch.manual_seed(0)
    hospitals = [Hospital(f"h{i}", Records(400 + 50 * i, s.classes, i), s) for i in range(s.hospitals)]
    server = Server(EcgNet(s.classes), hospitals)
    for r in range(s.rounds):
        chosen = [hospitals[i] for i in torch.randperm(s.hospitals)[:4]]
        states = [h.train(server.model) for h in chosen]
        server.average(states, [len(h.records) for h in chosen])  #: average
        accuracy = server.evaluate()  #: global_
        if r % 50 == 0:
            print(r, accuracy)


if __name__ == "__main__":
    main()
