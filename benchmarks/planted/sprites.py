"""Samples sprites from a small conditional diffusion model with DDIM and guidance."""
# mistake prompt: repeated-forward, rebuilt-tensors
# mistake embedding: python-in-step, rebuilt-tensors, looped-calls, looped-samples
# mistake heads: looped-calls, looped-samples
# mistake graph: no-grad-missing, growing-memory
# mistake frames: files-in-step

import math
import os
import tempfile

import numpy as np
import torch
from torch import nn

T, WIDTH, SIZE, WORDS, TEXT = 1000, 48, 24, 24, 96


def sinusoid(t, dim):
    """Transformer-style positions of the noise levels."""
    #+ embedding: rates = torch.exp(torch.arange(dim // 2) * (-math.log(10000.0) / (dim // 2)))
    #+ embedding: return torch.cat([torch.sin(t[:, None] * rates), torch.cos(t[:, None] * rates)], 1)
    table = torch.zeros(len(t), dim)  #- embedding
    for row, level in enumerate(t.tolist()):  #- embedding
        for i in range(dim // 2):  #- embedding
            angle = level / 10000 ** (2 * i / dim)  #- embedding
            table[row, i], table[row, i + dim // 2] = math.sin(angle), math.cos(angle)  #- embedding
    return table  #- embedding


class TextEncoder(nn.Module):
    def __init__(self, vocab=1000, dim=TEXT):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, words):
        return self.layers(self.embed(words))


class Head(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.q = nn.Linear(channels, size, bias=False)
        self.k, self.v = nn.Linear(TEXT, size, bias=False), nn.Linear(TEXT, size, bias=False)

    def forward(self, x, text):
        scores = self.q(x) @ self.k(text).transpose(1, 2) / self.q.out_features**0.5
        return scores.softmax(-1) @ self.v(text)


class CrossAttention(nn.Module):
    def __init__(self, channels, heads=16):
        super().__init__()
        size = channels // heads
        self.norm, self.out = nn.GroupNorm(8, channels), nn.Linear(channels, channels)
        self.heads = nn.ModuleList(Head(channels, size) for _ in range(heads))  #- heads
        #+ heads: self.count, self.q = heads, nn.Linear(channels, channels, bias=False)
        #+ heads: self.kv = nn.Linear(TEXT, 2 * channels, bias=False)

    def forward(self, x, text):
        b, c, h, w = x.shape
        y = self.norm(x).flatten(2).transpose(1, 2)
        #+ heads: split = lambda z: z.unflatten(-1, (-1, c // self.count)).transpose(1, 2)
        #+ heads: k, v = self.kv(text).chunk(2, -1)
        #+ heads: y = torch.nn.functional.scaled_dot_product_attention(split(self.q(y)), split(k), split(v))
        #+ heads: y = y.transpose(1, 2).flatten(2)
        y = torch.cat([head(y, text) for head in self.heads], dim=-1)  #- heads
        return x + self.out(y).transpose(1, 2).view(b, c, h, w)


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
        self.level = nn.Linear(WIDTH, b)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        level = self.level(sinusoid(t, WIDTH))  #: embedding
        return self.skip(x) + self.second(self.first(x) + level[:, :, None, None])


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        w = WIDTH
        self.stem, self.out = nn.Conv2d(4, w, 3, padding=1), nn.Conv2d(w, 4, 3, padding=1)
        self.down, self.shrink = Block(w, w), nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.middle = nn.ModuleList([Block(2 * w, 2 * w), Block(2 * w, 2 * w)])
        self.attend = nn.ModuleList([CrossAttention(2 * w), CrossAttention(2 * w)])
        self.grow, self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2), Block(2 * w, w)

    def forward(self, x, t, text):
        a = self.down(self.stem(x), t)
        y = self.shrink(a)
        for block, attend in zip(self.middle, self.attend):
            y = attend(block(y, t), text)
        return self.out(self.up(torch.cat([self.grow(y), a], 1), t))


class Recorder:
    """Keeps the frames of the film of how a sprite appears."""

    def __init__(self, folder):
        self.folder, self.frame = folder, 0

    def __call__(self, x0):
        self.frame += 1
        #+ frames: if self.frame % 25: return
        picture = ((x0.detach().clamp(-1, 1) + 1) * 127.5).numpy().astype(np.uint8)
        with open(os.path.join(self.folder, f"{self.frame % 50:03d}.npz"), "wb") as file:  #: frames
            np.savez_compressed(file, picture=picture)  #: frames
            os.fsync(file.fileno())  #: frames


class Sampler:
    def __init__(self, model, encoder, steps=50, scale=4.0):
        self.model, self.encoder, self.scale = model.eval(), encoder.eval(), scale
        self.levels = torch.linspace(T - 1, 0, steps).long()
        self.alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T), 0)

    def guided(self, x, t, text):
        both = self.model(torch.cat([x, x]), torch.cat([t, t]), text)  #: graph
        without, conditional = both.chunk(2)
        return without + self.scale * (conditional - without)

    def context(self, words):
        return self.encoder(torch.cat([torch.zeros_like(words), words]))  #: prompt

    #+ graph: @torch.no_grad()
    def sample(self, words, on_frame):
        x = torch.randn(len(words), 4, SIZE, SIZE)
        #+ prompt: text = self.context(words)
        for level, following in zip(self.levels, [*self.levels[1:], None]):
            text = self.context(words)  #- prompt
            t = level.expand(len(x)).float()
            noise = self.guided(x, t, text)  #: graph
            alpha = self.alphas[level]
            x0 = (x - (1 - alpha).sqrt() * noise) / alpha.sqrt()
            after = self.alphas[following] if following is not None else torch.tensor(1.0)
            x = after.sqrt() * x0 + (1 - after).sqrt() * noise
            on_frame(x0)
            # end of step
        return x


torch.manual_seed(0)
sampler = Sampler(Denoiser(), TextEncoder())
for film in range(20):
    sampler.sample(torch.randint(1, 1000, (4, WORDS)), Recorder(tempfile.mkdtemp()))
