"""PointNet with a local feature stage."""
# mistake knn: looped-samples, looped-calls
# mistake tnet: looped-samples, looped-calls
# mistake rotate: python-in-step, main-process-data, looped-samples
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(xyz, k):
    """Indices of the k nearest points of each point."""
    result = []
    for cloud in xyz:  #- knn
        d = torch.cdist(cloud, cloud)  #- knn
        result.append(d.topk(k, largest=False)[1])  #- knn
    return torch.stack(result)  #- knn
    #+ knn: return torch.cdist(xyz, xyz).topk(k, largest=False)[1]


def gather(feats, idx):
    b = torch.arange(len(feats)).view(-1, 1, 1)
    return feats[b, idx]


class PointNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.local = nn.Linear(6, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 128))
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, classes))
        self.tnet = nn.Linear(128, 9)

    def forward(self, xyz):
        idx = knn(xyz, 8)
        near = gather(xyz, idx)
        rel = torch.cat([near - xyz.unsqueeze(2), xyz.unsqueeze(2).expand_as(near)], -1)
        f = self.mlp(F.relu(self.local(rel)).max(2)[0])
        g = f.max(1)[0]
        return self.head(g), self.tnet(g).view(-1, 3, 3)


def augment(points):
    out = np.empty_like(points)
    for k in range(points.shape[0]):
        angle = np.random.uniform() * 2 * np.pi  #: rotate
        c, s = np.cos(angle), np.sin(angle)  #: rotate
        rot = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])  #: rotate
        out[k] = np.dot(points[k].reshape(-1, 3), rot)  #: rotate
        out[k] += np.clip(0.01 * np.random.randn(*points[k].shape), -0.05, 0.05)  #: rotate
    return out


def augment_fast(points):
    return points


def train():
    torch.manual_seed(0)
    net = PointNet()
    teacher = PointNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    clouds = np.random.randn(300, 128, 3).astype(np.float32)
    targets = torch.randint(0, 10, (300,))
    for it in range(600):
        pick = np.random.choice(300, 24)
        pts = clouds[pick]
        pts = augment(pts)  #- rotate
        #+ rotate: pts = augment_fast(pts)
        x, y = torch.from_numpy(pts).float(), targets[pick]
        logits, t = net(x)
        with torch.no_grad():
            soft, _ = teacher(x)
        loss = F.cross_entropy(logits, y) + F.mse_loss(logits, soft)
        reg = 0.0  #- tnet
        for m in t:  #- tnet
            reg = reg + torch.norm(torch.eye(3) - m @ m.t())  #- tnet
        reg = reg / len(t)  #- tnet
        #+ tnet: reg = torch.linalg.matrix_norm(torch.eye(3) - t @ t.transpose(1, 2)).mean()
        loss = loss + 0.001 * reg
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # end of step


train()
