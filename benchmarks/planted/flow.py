"""Density estimation with a Glow-like normalizing flow on sensor vectors."""
# mistake mask: rebuilt-tensors, looped-calls
# mistake base: distribution-checks, rebuilt-tensors, python-in-step, modules-made
# mistake stable: float64, repeated-casts
# mistake clip: looped-parameters, host-metrics
# mistake heldout: no-grad-missing, recorded-evaluation, evaluation-dominates
# mistake check: no-grad-missing, unused-forward, host-metrics, recorded-evaluation, repeated-forward
import math

import torch
import torch.nn as nn

DIM, HIDDEN, BLOCKS, BATCH = 24, 96, 6, 256


def get_mask(dim, parity):
    return torch.tensor([(i + parity) % 2 for i in range(dim)], dtype=torch.float32)  #: mask


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))

    def inverse(self, z):
        return z * (-self.log_scale).exp() - self.shift


class Mix(nn.Module):
    """Invertible linear map."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(dim, dim))[0])

    def forward(self, x):
        return x @ self.weight, torch.linalg.slogdet(self.weight)[1].expand(len(x))

    def inverse(self, z):
        return z @ torch.linalg.inv(self.weight)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, parity):
        super().__init__()
        self.dim, self.parity = dim, parity
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * dim)
        )
        nn.init.zeros_(self.net[-1].weight)
        #+ mask: self.register_buffer("mask", get_mask(dim, parity))

    def params(self, x):
        mask = get_mask(self.dim, self.parity)  #- mask
        #+ mask: mask = self.mask
        #+ stable: s, t = self.net(x * mask).chunk(2, dim=1)
        h = self.net.double()(x.double() * mask)  #- stable
        s, t = h.chunk(2, dim=1)  #- stable
        s = torch.tanh(s) * (1 - mask)  #: stable
        return s, t * (1 - mask)  #: stable

    def forward(self, x):
        s, t = self.params(x)  #: mask
        y = x * s.exp() + t  #: stable
        return y.float(), s.sum(1).float()

    def inverse(self, y):
        s, t = self.params(y)  #: mask
        return ((y - t) * (-s).exp()).float()


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for b in range(BLOCKS):
            layers += [ActNorm(DIM), Mix(DIM), Coupling(DIM, HIDDEN, b % 2)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, logdet = layer(x)  #: check
            total = total + logdet
        return x, total

    def inverse(self, z):
        for layer in reversed(self.layers):
            z = layer.inverse(z)  #: check
        return z

    def log_prob(self, x):
        z, logdet = self(x)  #: heldout
        base = torch.distributions.MultivariateNormal(torch.zeros(DIM), torch.eye(DIM))  #- base
        return base.log_prob(z) + logdet, z  #- base
        #+ base: return -0.5 * (z**2).sum(1) - 0.5 * DIM * math.log(2 * math.pi) + logdet, z


def clip_gradients(model, limit=1.0):
    #+ clip: torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    total = 0.0  #- clip
    for param in model.parameters():  #- clip
        if param.grad is not None:  #- clip
            total += param.grad.data.norm(2).item() ** 2  #- clip
    coef = limit / (math.sqrt(total) + 1e-6)  #- clip
    if coef < 1:  #- clip
        for param in model.parameters():  #- clip
            if param.grad is not None:  #- clip
                param.grad.data.mul_(coef)  #- clip


class Sensors:
    def __init__(self, n=20000):
        g = torch.Generator().manual_seed(1)
        latent = torch.randn(n, 5, generator=g)
        self.x = torch.tanh(latent @ torch.randn(5, DIM, generator=g)) + 0.1 * torch.randn(n, DIM, generator=g)
        self.x = (self.x - self.x.mean(0)) / self.x.std(0)
        self.train, self.valid = self.x[:-1500], self.x[-1500:]

    def batches(self):
        while True:
            yield from self.train[torch.randperm(len(self.train))].split(BATCH)


def evaluate(flow, x):
    flow.eval()
    #+ heldout: with torch.no_grad(): nll = -flow.log_prob(x)[0].mean()
    nll = -flow.log_prob(x)[0].mean()  #- heldout
    flow.train()
    return nll.item()


def reconstruction(flow, x, z):
    """Is the flow still invertible?"""
    return (flow.inverse(z) - x).abs().max().item()  #: check


def train(steps=6000):
    torch.manual_seed(0)
    data, flow = Sensors(), Flow()
    optimizer = torch.optim.AdamW(flow.parameters(), lr=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, error = float("inf"), 0.0
    for step, x in zip(range(steps), data.batches()):
        logp, z = flow.log_prob(x)
        loss = -logp.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  #: stable
        clip_gradients(flow)  #: clip
        optimizer.step()
        schedule.step()
        error = reconstruction(flow, x, z)  #- check
        #+ check: if step % 100 == 0: error = reconstruction(flow, x, z)
        if step % 4 == 0:
            best = min(best, evaluate(flow, data.valid))  #: heldout
        # end of step
        if step % 100 == 0:
            print(f"{step} nll {loss.item():.3f} best {best:.3f} invertible to {error:.1e}")


if __name__ == "__main__":
    train()
