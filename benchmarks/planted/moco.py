"""Momentum contrast: two encoders and a queue of negatives."""
# mistake key: no-grad-missing, unused-gradients
# mistake momentum: looped-parameters, copied-state
# mistake queue: rebuilt-tensors, looped-samples, python-in-step, looped-calls
# mistake crops: looped-samples, looped-calls, main-process-data, python-in-step
import copy
import random

import torch
import torch.nn.functional as F
from torch import nn

QUEUE, DIM, TEMPERATURE, MOMENTUM = 2048, 64, 0.2, 0.99
BATCH, CROP = 48, 28


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, cout)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        *[Block(16, 16, 1), Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1), Block(32, 64, 2)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, DIM),
    )


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = encoder()
        self.key = copy.deepcopy(self.query)
        #+ key: self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM), dim=1))
        self.at = 0
        self.waiting = list(F.normalize(torch.randn(QUEUE, DIM), dim=1))

    @torch.no_grad()
    def follow(self):
        #+ momentum: torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - MOMENTUM)
        for pq, pk in zip(self.query.parameters(), self.key.parameters()):  #- momentum
            pk.data = pk.data * MOMENTUM + pq.data * (1.0 - MOMENTUM)  #- momentum

    @torch.no_grad()
    def enqueue(self, keys):
        #+ queue: self.queue[self.at : self.at + len(keys)] = keys[: QUEUE - self.at]
        #+ queue: self.at = (self.at + len(keys)) % QUEUE
        for k in keys:  #- queue
            self.waiting.pop(0)  #- queue
            self.waiting.append(k)  #- queue

    def negatives(self):
        return torch.stack(self.waiting)  #- queue
        #+ queue: return self.queue.clone()

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        self.follow()
        k = F.normalize(self.key(b), dim=1)  #: key
        positive = (q * k.detach()).sum(1, keepdim=True)
        logits = torch.cat([positive, q @ self.negatives().T], dim=1) / TEMPERATURE
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k.detach())
        return loss


def augment(images):
    #+ crops: n = len(images)
    #+ crops: top, left = torch.randint(0, 5, (2, n, 1))
    #+ crops: rows = (top + torch.arange(CROP)).view(n, 1, CROP, 1)
    #+ crops: columns = left + torch.arange(CROP)
    #+ crops: columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns).view(n, 1, 1, CROP)
    #+ crops: out = images[torch.arange(n).view(n, 1, 1, 1), torch.arange(3).view(1, 3, 1, 1), rows, columns]
    #+ crops: return out * (0.8 + 0.4 * torch.rand(n, 1, 1, 1))
    out = []  #- crops
    for image in images:  #- crops
        top, left = random.randint(0, 4), random.randint(0, 4)  #- crops
        crop = image[:, top : top + CROP, left : left + CROP]  #- crops
        if random.random() < 0.5:  #- crops
            crop = torch.flip(crop, [2])  #- crops
        crop = crop * (0.8 + 0.4 * random.random())  #- crops
        out.append(crop)  #- crops
    return torch.stack(out)  #- crops


def main():
    random.seed(0)
    torch.manual_seed(0)
    images = torch.rand(1024, 3, 32, 32)
    model = MoCo()
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    for _ in range(3000):
        batch = images[torch.randint(0, len(images), (BATCH,))]
        loss = model(augment(batch), augment(batch))
        optimizer.zero_grad()
        loss.backward()  #: key
        optimizer.step()
        # end of step


main()
