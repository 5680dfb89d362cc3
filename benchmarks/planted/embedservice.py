"""Answers requests: embeds images and returns the most similar products."""
# mistake index: python-in-step, rebuilt-tensors
# mistake train: no-grad-missing
# mistake resize: looped-samples, looped-calls, python-in-step
# mistake rank: looped-calls, looped-samples, python-in-step
# mistake log: files-in-step
import json
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
PRODUCTS, DIM = 3000, 96


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, DIM),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class Service:
    def __init__(self):
        self.model = Embedder().eval()
        self.vectors = np.random.RandomState(0).randn(PRODUCTS, DIM).tolist()
        self.index = F.normalize(torch.tensor(self.vectors), dim=1)
        self.mean, self.std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        self.log = os.path.join(tempfile.mkdtemp(), "requests.jsonl")

    def preprocess(self, images):
        #+ resize: x = F.interpolate(images.float() / 255, size=64)
        #+ resize: return (x - self.mean[:, None, None]) / self.std[:, None, None]
        out = []  #- resize
        for image in images:  #- resize
            x = F.interpolate(image[None].float() / 255, size=64)[0]  #- resize
            for c in range(3):  #- resize
                x[c] = (x[c] - self.mean[c]) / self.std[c]  #- resize
            out.append(x)  #- resize
        return torch.stack(out)  #- resize

    def answer(self, images):
        x = self.preprocess(images)
        #+ train: with torch.no_grad():
        #+ train:     e = self.model(x)
        e = self.model(x)  #- train
        index = self.index
        index = F.normalize(torch.tensor(self.vectors), dim=1)  #- index
        #+ rank: best = (e @ index.T).topk(5).indices.tolist()
        best = []  #- rank
        for row in e:  #- rank
            similar = torch.stack([torch.dot(row, product) for product in index[:200]])  #- rank
            best.append(similar.topk(5).indices.tolist())  #- rank
        return best


service = Service()
pool = torch.randint(0, 256, (256, 3, 80, 80), dtype=torch.uint8)
for request in range(1500):
    images = pool[torch.randint(0, 256, (16,))]
    answer = service.answer(images)
    with open(service.log, "a") as file:  #- log
        for line in answer:  #- log
            file.write(json.dumps({"request": request, "best": line}) + "\n")  #- log
        file.flush()  #- log
        os.fsync(file.fileno())  #- log
    # end of step
