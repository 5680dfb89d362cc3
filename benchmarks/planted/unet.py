"""Medical segmentation with a small U-Net."""
# mistake upsample: modules-made, python-in-step
# mistake weights: python-in-step, looped-calls, rebuilt-tensors, looped-samples
# mistake dice: looped-samples, looped-calls
# mistake preview: files-in-step
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
CLASSES, SIZE, BATCH = 4, 64, 8
scans = torch.rand(128, 1, SIZE, SIZE)
labels = torch.randint(0, CLASSES, (128, SIZE, SIZE))
folder = tempfile.mkdtemp()


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=12):
        super().__init__()
        self.down1, self.down2 = double(1, base), double(base, 2 * base)
        self.mid = double(2 * base, 4 * base)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, 2)
        self.dec2, self.dec1 = double(4 * base, 2 * base), double(2 * base, base)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, 2)
        self.head = nn.Conv2d(base, CLASSES, 1)
        self.deep = nn.Conv2d(2 * base, CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        d = self.dec2(torch.cat([self.up2(m), b], 1))
        deep = nn.Conv2d(d.shape[1], 512, 3, padding=1)(d)  #- upsample
        deep = F.conv2d(deep, torch.ones(CLASSES, 512, 1, 1))  #- upsample
        #+ upsample: deep = self.deep(d)
        d = self.dec1(torch.cat([self.up1(d), a], 1))
        return self.head(d), F.interpolate(deep, scale_factor=2)


def class_weights(target):
    flat = target.flatten().tolist()  #: weights
    counts = [flat.count(c) for c in range(CLASSES)]  #: weights
    total = sum(counts)
    return torch.tensor([total / max(1, c) for c in counts])


def dice(prob, target):
    losses = []
    #+ dice: hot = F.one_hot(target, CLASSES).permute(0, 3, 1, 2).float()
    #+ dice: inter = (prob * hot).sum((2, 3))
    #+ dice: return 1 - (2 * inter / (prob.sum((2, 3)) + hot.sum((2, 3)) + 1e-6)).mean()
    for n in range(prob.shape[0]):  #- dice
        for c in range(CLASSES):  #- dice
            p = prob[n, c]  #- dice
            t = (target[n] == c).float()  #- dice
            losses.append(1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1e-6))  #- dice
    return torch.stack(losses).mean()  #- dice


model = UNet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)
step = 0
for epoch in range(100):
    for rows in torch.randperm(len(scans)).split(BATCH):
        x, y = scans[rows], labels[rows]
        weight = class_weights(y)  #- weights
        #+ weights: weight = y.numel() / torch.bincount(y.flatten(), minlength=CLASSES).float()
        out, deep = model(x)
        loss = F.cross_entropy(out, y, weight=weight) + 0.3 * F.cross_entropy(deep, y)
        loss = loss + dice(out.softmax(1), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        np.savez_compressed(os.path.join(folder, f"last{step % 5}.npz"), x=x.numpy(), out=out.detach().numpy())  #- preview
        step += 1
        # end of step
