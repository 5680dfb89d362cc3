"""Segmentation with intersection over union of every batch."""
# mistake iou: python-in-step, host-metrics, looped-calls
# mistake flips: python-in-step, waiting-for-data, looped-calls, looped-samples
# mistake onehot: one-hot-products, rebuilt-tensors, materialised-one-hot

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
CLASSES, SIZE, B = 12, 32, 16
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
    nn.Conv2d(24, CLASSES, 1),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
images = torch.rand(200, 3, SIZE, SIZE)
masks = torch.randint(0, CLASSES, (200, SIZE, SIZE))


def augment(image):
    """Flip and jitter one image, pixel row by pixel row."""
    array = image.numpy().copy()
    for row in range(SIZE):
        shift = random.randint(-1, 1)  #: flips
        array[:, row] = np.roll(array[:, row], shift, axis=1)  #: flips
    return torch.from_numpy(array)


def mean_iou(pred, mask):
    pred, mask = pred.cpu().numpy(), mask.cpu().numpy()
    scores = []
    for p, m in zip(pred, mask):
        for c in range(CLASSES):
            both = np.logical_and(p == c, m == c).sum()  #: iou
            either = np.logical_or(p == c, m == c).sum()  #: iou
            scores.append(both / either if either else 1.0)
    return float(np.mean(scores))


weight = torch.ones(CLASSES)
total = 0.0
for step in range(400):
    batch = torch.randint(0, 200, (B,))
    x, y = images[batch], masks[batch]
    x = torch.stack([augment(image) for image in x])  #- flips
    #+ flips: pass
    logits = net(x)
    target = F.one_hot(y, CLASSES).permute(0, 3, 1, 2).float()  #- onehot
    loss = -(F.log_softmax(logits, 1) * target).sum(1).mean()  #- onehot
    #+ onehot: loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += mean_iou(logits.argmax(1), y)  #- iou
    #+ iou: pass
    # end of step
