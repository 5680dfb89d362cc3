"""Contrastive learning of image representations with two views."""
# mistake views: looped-samples, python-in-step, main-process-data
# mistake mask: rebuilt-tensors, python-in-step
# mistake unused: unused-forward, unused-gradients, no-grad-missing
# mistake top: looped-samples, python-in-step, host-metrics
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
BATCH, SIZE, TEMPERATURE = 64, 32, 0.2
data = torch.rand(1024, 3, SIZE, SIZE)


def augment(images):
    #+ views: flip = torch.rand(len(images), 1, 1, 1) < 0.5
    #+ views: images = torch.where(flip, images.flip(3), images)
    #+ views: factor = 0.6 + 0.8 * torch.rand(len(images), 1, 1, 1)
    #+ views: return (images * factor).clamp(0, 1)
    views = []  #- views
    for image in images:  #- views
        if random.random() < 0.5:  #- views
            image = torch.flip(image, dims=[2])  #- views
        image = (image * (0.6 + 0.8 * random.random())).clamp(0, 1)  #- views
        views.append(image)  #- views
    return torch.stack(views)  #- views


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        h = self.body(x)
        return h, F.normalize(self.projector(h), dim=1)


def positives(n):
    mask = torch.zeros(2 * n, 2 * n)  #: mask
    for i in range(n):  #: mask
        mask[i, i + n] = 1  #: mask
        mask[i + n, i] = 1  #: mask
    return mask.bool()


POSITIVES = positives(BATCH)


def nt_xent(z1, z2):
    z = torch.cat([z1, z2])
    sim = z @ z.T / TEMPERATURE
    sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    mask = positives(len(z1))  #- mask
    #+ mask: mask = POSITIVES
    return -F.log_softmax(sim, dim=1)[mask].mean(), sim


def top5(sim):
    hits = 0
    n = sim.shape[0] // 2
    for i in range(sim.shape[0]):  #: top
        best = sim[i].topk(5).indices  #: top
        if (i + n) % (2 * n) in best:  #: top
            hits += 1  #: top
    return hits / sim.shape[0]


encoder = Encoder()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for epoch in range(60):
    for start in range(0, len(data) - BATCH, BATCH):
        batch = data[start : start + BATCH]
        h0, z0 = encoder(batch)  #- unused
        first, second = augment(batch), augment(batch)
        _, z1 = encoder(first)
        _, z2 = encoder(second)
        loss, sim = nt_xent(z1, z2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy = top5(sim.detach())  #- top
        #+ top: accuracy = None
        # end of step
    print(epoch, loss.item())
