"""beta-VAE with a convolutional decoder."""
# mistake kl: looped-samples, looped-calls, distribution-checks
# mistake sums: growing-memory
# mistake twoback: repeated-backward
# mistake monitor: repeated-forward, host-metrics, evaluation-dominates
import torch
import torch.distributions as D
from torch import nn, optim

torch.manual_seed(0)
BETA, LATENT, BATCH = 4.0, 32, 64


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(32 * 49, LATENT), nn.Linear(32 * 49, LATENT)
        self.dec_in = nn.Linear(LATENT, 32 * 49)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h)

    def decode(self, z):
        return self.dec(torch.relu(self.dec_in(z)).view(-1, 32, 7, 7))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


data = torch.rand(2048, 1, 28, 28)
vae = VAE()
opt = optim.Adam(vae.parameters(), lr=1e-3)
history = []
for step in range(600):
    x = data[torch.randperm(2048)[:BATCH]]
    recon, mu, logvar = vae(x)
    rec = nn.functional.binary_cross_entropy_with_logits(recon, x, reduction="sum") / BATCH
    kl = 0  #- kl
    for m, lv in zip(mu, logvar):  #- kl
        q = D.Independent(D.Normal(m, (0.5 * lv).exp()), 1)  #- kl
        p = D.Independent(D.Normal(torch.zeros_like(m), torch.ones_like(m)), 1)  #- kl
        kl = kl + D.kl_divergence(q, p)  #- kl
    kl = kl / BATCH  #- kl
    #+ kl: kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
    opt.zero_grad()
    rec.backward(retain_graph=True)  #- twoback
    (BETA * kl).backward()  #- twoback
    #+ twoback: (rec + BETA * kl).backward()
    opt.step()
    history.append(rec + BETA * kl)  #- sums
    #+ sums: history.append((rec + BETA * kl).item())
    vae.eval()  #- monitor
    out, _, _ = vae(x)  #- monitor
    err = ((out.sigmoid() - x) ** 2).mean().item()  #- monitor
    vae.train()  #- monitor
    #+ monitor: err = ((recon.detach().sigmoid() - x) ** 2).mean().item()
    if step % 100 == 0:
        print(f"{step} rec {rec.item():.2f} kl {kl.item():.2f} mse {err:.4f}")
    # end of step
