"""A generative adversarial network on small images."""
# mistake detach: unused-gradients
# mistake again: repeated-forward
# mistake retain: retained-graph, unused-gradients

import torch
import torch.nn as nn

torch.manual_seed(0)
Z = 64
G = nn.Sequential(
    nn.Linear(Z, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh()
)
D = nn.Sequential(
    nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
data = torch.rand(1024, 784) * 2 - 1
real_label, fake_label = torch.ones(128, 1), torch.zeros(128, 1)

for step in range(500):
    real = data[torch.randint(0, 1024, (128,))]
    z = torch.randn(128, Z)
    fake = G(z)

    opt_d.zero_grad()
    d_fake = D(fake)  #- detach
    #+ detach: d_fake = D(fake.detach())
    d_loss = bce(D(real), real_label) + bce(d_fake, fake_label)
    d_loss.backward(retain_graph=True)  #- detach
    #+ detach: d_loss.backward()
    opt_d.step()

    opt_g.zero_grad()
    fake = G(z)  #- again
    #+ again: pass
    g_loss = bce(D(fake), real_label)
    g_loss.backward(create_graph=True)  #- retain
    #+ retain: g_loss.backward()
    opt_g.step()
    # end of step
