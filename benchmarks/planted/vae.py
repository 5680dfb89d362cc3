"""A variational autoencoder with torch.distributions."""
# mistake loop: looped-samples
# mistake validate: distribution-checks
# memory graphs: growing-memory

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Bernoulli, Normal, kl_divergence

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(784, 256), nn.ReLU())
        self.mu, self.logvar = nn.Linear(256, 20), nn.Linear(256, 20)
        self.dec = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, x):
        h = self.enc(x)
        mean, std = self.mu(h), (0.5 * self.logvar(h)).exp()
        q = Normal(mean, std)  #- validate
        #+ validate: q = Normal(mean, std, validate_args=False)
        z = q.rsample()
        return self.dec(z), q


def reconstruction(logits, x):
    total = 0.0  #- loop
    for i in range(x.shape[0]):  #- loop
        total = total + F.binary_cross_entropy_with_logits(logits[i], x[i], reduction="sum")  #- loop
    return total / x.shape[0]  #- loop
    #+ loop: return F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.shape[0]


data = (torch.rand(2000, 784) > 0.5).float()
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
prior = Normal(torch.zeros(20), torch.ones(20), validate_args=False)
for step in range(400):
    x = data[torch.randint(0, 2000, (64,))]
    logits, q = model(x)
    p = Bernoulli(logits=logits)  #- validate
    #+ validate: p = Bernoulli(logits=logits, validate_args=False)
    surprise = -p.log_prob(x).sum(1).mean()
    loss = reconstruction(logits, x) + kl_divergence(q, prior).sum(1).mean() + 0.0 * surprise
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)  #- graphs
    #+ graphs: losses.append(loss.detach())
    mean_loss = torch.stack(losses).mean()  #- graphs
    #+ graphs: mean_loss = losses[-1]
    # end of step
