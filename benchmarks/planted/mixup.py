"""Image classification from a Dataset with Python augmentation."""
# mistake loader: waiting-for-data, python-in-step
# mistake ema: looped-parameters
# mistake host: python-in-step, host-metrics

import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)


class Images(Dataset):
    def __init__(self, ready):
        self.pixels = [[random.random() for _ in range(784)] for _ in range(600)]
        self.tensors = torch.tensor(self.pixels)
        self.ready = ready

    def __len__(self):
        return 600 * 40

    def __getitem__(self, at):
        if self.ready:
            return self.tensors[at % 600], at % 10
        pixels = [min(1.0, p * 1.1 + 0.01) for p in self.pixels[at % 600]]  #: loader
        return torch.tensor(pixels), at % 10  #: loader


loader = DataLoader(Images(ready=False), batch_size=32)  #- loader
#+ loader: loader = DataLoader(Images(ready=True), batch_size=32)
model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), *[m for _ in range(8) for m in (nn.Linear(200, 200), nn.ReLU())], nn.Linear(200, 100))
slow = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
right = 0
for step, (x, y) in enumerate(loader):  #: loader
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for key, value in model.state_dict().items():  #- ema
        slow.state_dict()[key].copy_(0.99 * slow.state_dict()[key] + 0.01 * value)  #- ema
    #+ ema: torch._foreach_lerp_(list(slow.state_dict().values()), list(model.state_dict().values()), 0.01)
    rows = logits.detach().cpu().tolist()  #- host
    for row, label in zip(rows, y.tolist()):  #- host
        ranked = sorted(range(len(row)), key=lambda c: -row[c])  #- host
        right += label in ranked[:5]  #- host
    #+ host: right += (logits.detach().topk(5).indices == y[:, None]).any(1).sum()
    # end of step
