"""Generates text with a small GPT, one prompt batch after another."""
# mistake cache: no-key-value-cache, growing-cache, repeated-forward
# mistake graph: no-grad-missing
# mistake penalty: python-in-step, looped-samples, looped-calls
# mistake mask: rebuilt-tensors
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, DIM, HEADS, LAYERS, CONTEXT, BATCH, NEW = 2000, 192, 6, 3, 128, 4, 24


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.register_buffer("causal", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x, past=None):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        n = k.shape[2]
        mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)[n - t : n, :n]  #- mask
        #+ mask: mask = self.causal[n - t : n, :n]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.out(y)
        return x + self.mlp(self.n2(x)), (k, v)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, past=None):
        start = 0 if past is None else past[0][0].shape[2]
        x = self.tok(ids) + self.pos(torch.arange(start, start + ids.shape[1]))
        caches = []
        for i, layer in enumerate(self.layers):
            x, cache = layer(x, None if past is None else past[i])
            caches.append(cache)
        return self.head(self.norm(x)), caches


def penalise(logits, ids, factor=1.2):
    #+ penalty: seen = logits.gather(1, ids)
    #+ penalty: return logits.scatter(1, ids, torch.where(seen < 0, seen * factor, seen / factor))
    logits = logits.clone()  #- penalty
    for b in range(ids.shape[0]):  #- penalty
        for token in set(ids[b].tolist()):  #- penalty
            if logits[b, token] < 0:  #- penalty
                logits[b, token] *= factor  #- penalty
            else:  #- penalty
                logits[b, token] /= factor  #- penalty
    return logits  #- penalty


def generate(model, prompt):
    ids, past, feed = prompt, None, prompt
    for _ in range(NEW):
        logits, past = model(ids)  #- cache
        #+ cache: logits, past = model(feed, past)
        last = penalise(logits[:, -1], ids)
        probs = F.softmax(last / 0.8, dim=-1)
        feed = torch.multinomial(probs.detach(), 1)
        ids = torch.cat([ids, feed], dim=1)
    return ids


model = GPT().eval()
for request in range(200):
    prompt = torch.randint(0, VOCAB, (BATCH, 32))
    text = generate(model, prompt)  #- graph
    #+ graph: with torch.no_grad():
    #+ graph:     text = generate(model, prompt)
    # end of step
