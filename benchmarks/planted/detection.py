"""Box regression on anchors; each batch's boxes are matched to anchors in Python loops."""
# mistake match: python-in-step, looped-samples, looped-calls, host-metrics

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
ANCHORS, BOXES, B = 64, 4, 8


def overlap(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))  #: match
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))  #: match
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both + 1e-9)  #: match


def match_one_by_one(anchors, boxes):
    found = []
    for image in boxes.tolist():
        for anchor in anchors.tolist():
            found.append(max(range(BOXES), key=lambda k: overlap(anchor, image[k])))  #: match
    return torch.tensor(found).view(B, ANCHORS)


def match(anchors, boxes):
    low = torch.maximum(anchors[None, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(anchors[None, :, None, 2:], boxes[:, None, :, 2:])
    both = (high - low).clamp_min(0).prod(-1)
    sizes = (boxes[..., 2:] - boxes[..., :2]).prod(-1)[:, None]
    own = (anchors[:, 2:] - anchors[:, :2]).prod(-1)[None, :, None]
    return (both / (own + sizes - both + 1e-9)).argmax(-1)


def some_boxes(*shape):
    low = torch.rand(*shape, 2) * 0.6
    return torch.cat([low, low + 0.1 + torch.rand(*shape, 2) * 0.3], -1)


anchors = some_boxes(ANCHORS)
images, truth = torch.rand(100, 3, 64, 64), some_boxes(100, BOXES)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 4 * ANCHORS),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(400):
    at = torch.randint(0, 100, (B,))
    boxes = truth[at]
    offsets = net(images[at]).view(B, ANCHORS, 4)
    which = match_one_by_one(anchors, boxes)  #- match
    #+ match: which = match(anchors, boxes)
    wanted = boxes.gather(1, which[..., None].expand(-1, -1, 4))
    loss = F.smooth_l1_loss(anchors + offsets, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
