"""A small character GPT."""
# mistake mask: rebuilt-tensors, python-in-step
# mistake apart: softmax-log-apart
# mistake positions: float64
# mistake log: files-in-step

import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, T, WIDTH, HEADS = 4000, 128, 96, 4


def sinusoids(length, width):
    at = torch.arange(length, dtype=torch.float64)[:, None]  #- positions
    #+ positions: at = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width, dtype=at.dtype)
    table[:, 0::2], table[:, 1::2] = torch.sin(at * rate), torch.cos(at * rate)
    return table


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("mask", torch.tril(torch.ones(T, T)) == 0)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in self.qkv(self.ln1(x)).split(c, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // HEADS)
        mask = torch.tensor([[j > i for j in range(t)] for i in range(t)])  #- mask
        #+ mask: mask = self.mask[:t, :t]
        scores = scores.masked_fill(mask, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.register_buffer("where", sinusoids(T, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        x = self.embed(ids) + self.where[: ids.shape[1]]
        for block in self.blocks:
            x = block(x.to(self.head.weight.dtype))
        return self.head(x)


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
text = torch.randint(0, VOCAB, (20000,))
log = open(os.path.join(tempfile.mkdtemp(), "log.txt"), "w")

for step in range(300):
    starts = torch.randint(0, 20000 - T - 1, (4,))
    x = torch.stack([text[s : s + T] for s in starts])
    y = torch.stack([text[s + 1 : s + T + 1] for s in starts])
    logits = model(x)
    probs = F.softmax(logits, dim=-1)  #- apart
    loss = F.nll_loss(torch.log(probs).view(-1, VOCAB), y.view(-1))  #- apart
    #+ apart: loss = F.cross_entropy(logits.view(-1, VOCAB), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, p in model.named_parameters():  #- log
        log.write(f"{step} {name} {p.detach().abs().mean():.6f}\n")  #- log
        log.flush()  #- log
        os.fsync(log.fileno())  #- log
    #+ log: pass
    # end of step
