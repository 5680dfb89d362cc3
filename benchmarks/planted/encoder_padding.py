"""A transformer classifier of sentences."""
# mistake padding: padding
# mistake threads: too-many-threads, openmp-spin

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(16)  #- threads
PAD = 0
sentences = [[random.randint(1, 2999) for _ in range(random.randint(6, 30))] for _ in range(800)]
labels = torch.randint(0, 3, (800,))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(3000, 64, padding_idx=PAD)
        self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)
        self.mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        self.out = nn.Linear(64, 3)

    def forward(self, ids):
        x = self.embed(ids)
        keep = (ids != PAD)[:, None, None, :]
        b, t, c = x.shape
        for _ in range(2):
            q, k, v = (p.view(b, t, 4, 16).transpose(1, 2) for p in self.qkv(x).split(c, 2))
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v, keep).transpose(1, 2).reshape(b, t, c))
            x = x + self.mlp(x)
        return self.out(x.mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(400):
    chosen = random.sample(range(800), 16)
    length = 128  #- padding
    #+ padding: length = max(len(sentences[i]) for i in chosen)
    ids = torch.tensor([sentences[i] + [PAD] * (length - len(sentences[i])) for i in chosen])  #: padding
    loss = F.cross_entropy(model(ids), labels[chosen])  #: padding
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
