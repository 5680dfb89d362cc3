"""A VQ-VAE with an exponential average of its weights."""
# mistake distances: broadcast-pairs, unfused-operators, far-from-roof
# mistake ema: looped-parameters, copied-state
# mistake anomaly: anomaly-detection
# mistake usage: python-in-step, looped-samples, looped-calls, host-metrics
import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
CODES, DIM, BATCH = 256, 32, 16
images = torch.rand(512, 3, 32, 32)


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(CODES, DIM)
        self.codebook.weight.data.uniform_(-1 / CODES, 1 / CODES)

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, DIM)
        with torch.no_grad():
            table = self.codebook.weight
            distances = ((flat.unsqueeze(1) - table.unsqueeze(0)) ** 2).sum(-1)  #- distances
            #+ distances: distances = torch.cdist(flat, table)
            codes = distances.argmin(1)
        q = self.codebook(codes).view(z.shape[0], z.shape[2], z.shape[3], DIM).permute(0, 3, 1, 2)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), loss, codes


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, DIM, 1)
        )
        self.quantizer = Quantizer()
        self.decoder = nn.Sequential(
            nn.Conv2d(DIM, 64, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 4, 2, 1),
        )

    def forward(self, x):
        q, loss, codes = self.quantizer(self.encoder(x))
        return self.decoder(q), loss, codes


def perplexity(codes):
    counts = [0] * CODES
    for c in codes:  #: usage
        counts[c.item()] += 1  #: usage
    p = torch.tensor(counts) / len(codes)
    return torch.exp(-(p * (p + 1e-10).log()).sum())


model = VQVAE()
average = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
for step in range(2000):
    x = images[torch.randint(0, len(images), (BATCH,))]
    recon, vq_loss, codes = model(x)
    loss = F.mse_loss(recon, x) + vq_loss
    optimizer.zero_grad()
    #+ anomaly: loss.backward()
    with torch.autograd.detect_anomaly():  #- anomaly
        loss.backward()  #- anomaly
    optimizer.step()
    #+ ema: with torch.no_grad():
    #+ ema:     ours, theirs = list(average.parameters()), list(model.parameters())
    #+ ema:     torch._foreach_lerp_(ours, theirs, 0.001)
    state = average.state_dict()  #- ema
    for name, value in model.state_dict().items():  #- ema
        state[name] = 0.999 * state[name] + 0.001 * value  #- ema
    average.load_state_dict(state)  #- ema
    used = perplexity(codes)  #- usage
    #+ usage: used = torch.bincount(codes, minlength=CODES)
    # end of step
