"""Small real models, a step of each: what the coverage test runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
Step = Callable[[], object]


def transformer() -> tuple[Any, Step]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = nn.ModuleList([nn.Embedding(100, 32), nn.Embedding(16, 32), layer, nn.Linear(32, 100)])
    tokens = torch.randint(0, 100, (4, 16))

    def step() -> object:
        words, places, block, head = model
        x = words(tokens) + places(torch.arange(16))
        mask = nn.Transformer.generate_square_subsequent_mask(16)
        logits = head(block(x, src_mask=mask, is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return model, step


def attention() -> tuple[Any, Step]:
    """Packed projections, rotary positions, grouped queries, RMS norm, a gated layer."""
    model = nn.ModuleList([nn.Linear(32, 64), nn.Linear(32, 32), nn.RMSNorm(32), nn.Linear(32, 64)])
    x = torch.randn(2, 16, 32)

    def step() -> object:
        project, out, norm, gate = model
        q, k, v = project(norm(x)).split([32, 16, 16], -1)
        q, k, v = (y.unflatten(-1, (-1, 8)).transpose(1, 2) for y in (q, k, v))
        angle = torch.outer(torch.arange(16.0), torch.ones(8))
        q, k = (
            y * angle.cos() + torch.cat((-y[..., 4:], y[..., :4]), -1) * angle.sin() for y in (q, k)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = out(y.transpose(1, 2).flatten(2))
        up, down = gate(y).chunk(2, -1)
        return (F.silu(up) * down).square().mean()

    return model, step


def convolutional() -> tuple[Any, Step]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, groups=4, stride=2),
        nn.GroupNorm(4, 32),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 3, dilation=2, padding=2),
        nn.InstanceNorm2d(32),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    return model, lambda: F.cross_entropy(model(images), labels, label_smoothing=0.1)


def unet() -> tuple[Any, Step]:
    model = nn.ModuleList(
        [
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 16, 3, padding=1, stride=2),
            nn.ConvTranspose2d(16, 8, 2, stride=2),
            nn.Conv2d(24, 3, 1),
        ]
    )
    x, target = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 32, 32)

    def step() -> object:
        first, down, up, last = model
        a = F.leaky_relu(first(x))
        b = F.relu(down(F.pad(a, (1, 1, 1, 1), mode="reflect")))[..., :8, :8]
        smooth = F.interpolate(b, scale_factor=2, mode="bilinear")
        joined = torch.cat([smooth, up(F.hardswish(b))], 1)
        return F.mse_loss(F.interpolate(last(joined), scale_factor=2, mode="nearest"), target)

    return model, step


def recurrent(kind: str) -> tuple[Any, Step]:
    model = getattr(nn, kind)(16, 32, num_layers=2, batch_first=True, bidirectional=True)
    x = torch.randn(4, 10, 16)
    return model, lambda: model(x)[0].mean()


def experts() -> tuple[Any, Step]:
    gate, layers = nn.Linear(32, 4), nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
    model = nn.ModuleList([gate, layers])
    x = torch.randn(64, 32)

    def step() -> object:
        weights, chosen = gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, layer in enumerate(layers):
            rows, slots = torch.where(chosen == number)
            out.index_add_(0, rows, (layer(x[rows]) * weights[rows, slots, None]).to(out.dtype))
        load = F.one_hot(chosen, 4).sum((0, 1)).float()
        order = chosen.flatten().argsort()
        shuffled = torch.gather(x, 0, order[:64, None].expand(64, 32) // 4)
        kept = out.masked_fill(out > 1, 0.0)
        kept[0] = 0.0
        return (kept * shuffled).sum() + load.var() + weights.cumsum(0).logsumexp(0).max()

    return model, step


MODELS: dict[str, Callable[[], tuple[Any, Step]]] = {
    "transformer": transformer,
    "attention": attention,
    "convolutional": convolutional,
    "unet": unet,
    "lstm": lambda: recurrent("LSTM"),
    "gru": lambda: recurrent("GRU"),
    "rnn": lambda: recurrent("RNN"),
    "experts": experts,
}

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "AdamW for-loop": lambda p: torch.optim.AdamW(p, foreach=False, fused=False),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True),
    "SGD fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "SGD foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "Adagrad fused": lambda p: torch.optim.Adagrad(p, fused=True),
    "RMSprop foreach": lambda p: torch.optim.RMSprop(p, foreach=True),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
}
