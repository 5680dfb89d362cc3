"""JAX programs of the usual kinds, and one of them in torch, for their accounts.

    python benchmarks/jax_programs.py linen            # 200 steps of one
    boundby run benchmarks/jax_programs.py linen --scale 8

`--scale` makes widths and batches larger, for GPUs. `torch` and `torch-compile` are the GPT in
torch: the same sizes, the same operators, the same optimizer as `gpt`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], Any]
VOCABULARY, LENGTH, LAYERS, HEADS, WIDTH, BATCH = 256, 64, 4, 4, 64, 8


def tokens(scale: int) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH * scale, LENGTH + 1))
    return drawn.astype(np.int32)


def gpt(scale: int) -> Step:
    """A GPT in plain pytrees, trained by Adam in one compiled function."""
    from jax_cases import gpt as model
    from jax_cases import trained

    return trained(model, scale)


def gpt_eager_update(scale: int) -> Step:
    from jax_cases import gpt as model
    from jax_cases import trained

    return trained(model, scale, jit_update=False)


def gpt_unjitted(scale: int) -> Step:
    from jax_cases import gpt as model
    from jax_cases import trained

    return trained(model, scale, jit_at_all=False)


def lstm(scale: int) -> Step:
    from jax_cases import lstm as model
    from jax_cases import trained

    return trained(model, scale)


def linen(scale: int) -> Step:
    """A transformer of flax linen with AdamW of optax."""
    import flax.linen as nn
    import jax.numpy as jnp

    width = WIDTH * scale

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any, mask: Any) -> Any:
            x = x + nn.SelfAttention(num_heads=HEADS)(nn.LayerNorm()(x), mask=mask)
            return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, given: Any) -> Any:
            x = nn.Embed(VOCABULARY, width)(given)
            x = x + nn.Embed(LENGTH, width)(jnp.arange(given.shape[1]))
            mask = nn.make_causal_mask(given)
            for _ in range(LAYERS):
                x = Block()(x, mask)
            return nn.Dense(VOCABULARY)(nn.LayerNorm()(x))

    drawn = jnp.asarray(tokens(scale))
    return _trained_linen(Transformer(), (drawn[:, :-1],), drawn[:, 1:], _cross_entropy)


def resnet(scale: int) -> Step:
    """A residual network of flax linen with batch normalization."""
    import flax.linen as nn
    import jax.numpy as jnp

    class Block(nn.Module):
        width: int
        stride: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            strides = (self.stride, self.stride)
            y = nn.Conv(self.width, (3, 3), strides, use_bias=False)(x)
            y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
            y = nn.Conv(self.width, (3, 3), use_bias=False)(y)
            y = nn.BatchNorm(use_running_average=False)(y)
            if x.shape != y.shape:
                x = nn.Conv(self.width, (1, 1), strides, use_bias=False)(x)
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(16 * scale, (3, 3), use_bias=False)(x))
            for stage, width in enumerate((16, 32, 64)):
                for block in range(2):
                    x = Block(width * scale, 2 if stage and not block else 1)(x)
            return nn.Dense(10)(x.mean((1, 2)))

    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(16 * scale, 32, 32, 3)).astype(np.float32))
    labels = jnp.asarray(rng.integers(0, 10, 16 * scale))
    return _trained_linen(ResNet(), (images,), labels, _cross_entropy)


def unet(scale: int) -> Step:
    """A UNet that predicts the noise of images, as diffusion models are trained."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp

    class Block(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x: Any, time: Any) -> Any:
            y = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(8)(x)))
            y = y + nn.Dense(self.width)(time)[:, None, None]
            y = nn.Conv(self.width, (3, 3))(nn.silu(nn.GroupNorm(8)(y)))
            return y + nn.Conv(self.width, (1, 1))(x)

    class UNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any, at: Any) -> Any:
            waves = at[:, None] * jnp.exp(-jnp.arange(16.0))
            time = nn.silu(nn.Dense(64)(jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1)))
            x = nn.Conv(16 * scale, (3, 3))(x)
            kept = []
            for width in (16, 32):
                x = Block(width * scale)(x, time)
                kept.append(x)
                x = nn.avg_pool(x, (2, 2), (2, 2))
            x = Block(64 * scale)(x, time)
            for width in (32, 16):
                batch, height, wide, channels = x.shape
                x = jax.image.resize(x, (batch, 2 * height, 2 * wide, channels), "nearest")
                x = Block(width * scale)(jnp.concatenate([x, kept.pop()], -1), time)
            return nn.Conv(3, (3, 3))(nn.silu(nn.GroupNorm(8)(x)))

    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(4 * scale, 32, 32, 3)).astype(np.float32))
    at = jnp.asarray(rng.uniform(size=4 * scale).astype(np.float32))
    return _trained_linen(UNet(), (images, at), images, lambda out, y: jnp.mean((out - y) ** 2))


def nnx(scale: int) -> Step:
    """The transformer of flax nnx, with its own optimizer."""
    import jax.numpy as jnp
    import optax
    from flax import nnx

    width = WIDTH * scale

    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.before = nnx.LayerNorm(width, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(HEADS, width, decode=False, rngs=rngs)
            self.between = nnx.LayerNorm(width, rngs=rngs)
            self.up = nnx.Linear(width, 4 * width, rngs=rngs)
            self.down = nnx.Linear(4 * width, width, rngs=rngs)

        def __call__(self, x: Any, mask: Any) -> Any:
            x = x + self.attention(self.before(x), mask=mask)
            return x + self.down(nnx.gelu(self.up(self.between(x))))

    class Transformer(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.words = nnx.Embed(VOCABULARY, width, rngs=rngs)
            self.positions = nnx.Embed(LENGTH, width, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
            self.norm = nnx.LayerNorm(width, rngs=rngs)
            self.head = nnx.Linear(width, VOCABULARY, rngs=rngs)

        def __call__(self, given: Any) -> Any:
            x = self.words(given) + self.positions(jnp.arange(given.shape[1]))
            mask = nnx.make_causal_mask(given)
            for block in self.blocks:
                x = block(x, mask)
            return self.head(self.norm(x))

    model = Transformer(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    drawn = jnp.asarray(tokens(scale))

    @nnx.jit
    def train(model: Any, optimizer: Any, drawn: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return _cross_entropy(model(drawn[:, :-1]), drawn[:, 1:])

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return loss

    return lambda: train(model, optimizer, drawn)


def decode(scale: int) -> Step:
    """One token a step by a transformer, its keys and values kept in a donated cache."""
    import jax
    import jax.numpy as jnp
    from jax_cases import gpt as model

    width, most, batch = WIDTH * scale, 512, BATCH * scale
    params = model(scale).params
    cache = jnp.zeros((LAYERS, 2, batch, HEADS, most, width // HEADS))

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def next_token(params: Any, cache: Any, last: Any, at: Any) -> Any:
        x = params["words"][last]
        for layer, p in enumerate(params["blocks"]):
            parts = (norm(x) @ p["qkv"]).reshape(batch, 3, HEADS, 1, -1)
            q, new = parts[:, 0], parts[:, 1:].swapaxes(0, 1)
            cache = jax.lax.dynamic_update_slice(cache, new[None], (layer, 0, 0, 0, at, 0))
            k, v = cache[layer]
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
            weights = jax.nn.softmax(jnp.where(jnp.arange(most) <= at, scores, -1e9))
            x = x + jnp.einsum("bhqk,bhkd->bhqd", weights, v).reshape(x.shape) @ p["out"]
            x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
        return cache, (x @ params["words"].T).argmax(-1)

    run = jax.jit(next_token, donate_argnums=1)
    held: list[Any] = [cache, jnp.zeros(batch, int), 0]

    def step() -> Any:
        held[0], held[1] = run(params, held[0], held[1], held[2] % most)
        held[2] += 1
        return held[1]

    return step


def _cross_entropy(logits: Any, labels: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _trained_linen(
    model: Any, given: tuple[Any, ...], labels: Any, loss_of: Callable[[Any, Any], Any]
) -> Step:
    """A training step of a linen model: parameters and running statistics, AdamW, all donated."""
    import jax
    import optax

    variables = model.init(jax.random.key(0), *given)
    params, others = variables["params"], {k: v for k, v in variables.items() if k != "params"}
    optimizer = optax.adamw(1e-3)

    def loss(params: Any, others: Any, given: Any, labels: Any) -> Any:
        out, changed = model.apply({"params": params, **others}, *given, mutable=list(others))
        return loss_of(out, labels), changed

    def train(params: Any, others: Any, state: Any, given: Any, labels: Any) -> Any:
        graded = jax.value_and_grad(loss, has_aux=True)
        (value, others), gradients = graded(params, others, given, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), others, state, value

    run = jax.jit(train, donate_argnums=(0, 1, 2))
    held: list[Any] = [params, others, optimizer.init(params)]

    def step() -> Any:
        *held[:], value = run(*held, given, labels)
        return value

    return step


def torch_gpt(scale: int, *, compiled: bool = False) -> Step:
    import torch
    from torch.nn import functional

    width, device = WIDTH * scale, "cuda" if torch.cuda.is_available() else "cpu"

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
            self.out = torch.nn.Linear(width, width, bias=False)
            self.up = torch.nn.Linear(width, 4 * width, bias=False)
            self.down = torch.nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any, mask: Any) -> Any:
            heads = (*x.shape[:2], HEADS, width // HEADS)
            normal = functional.layer_norm(x, (width,))
            q, k, v = (p.reshape(heads).transpose(1, 2) for p in self.qkv(normal).chunk(3, -1))
            scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
            x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
            up = functional.gelu(self.up(functional.layer_norm(x, (width,))), approximate="tanh")
            return x + self.down(up)

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(VOCABULARY, width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))

        def forward(self, given: Any, positions: Any, mask: Any) -> Any:
            x = self.words(given) + positions
            for block in self.blocks:
                x = block(x, mask)
            return x @ self.words.weight.T

    model = Transformer().to(device)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    drawn = torch.from_numpy(tokens(scale)).long().to(device)
    positions = torch.zeros(LENGTH, width, device=device)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=device).tril()

    def step() -> Any:
        logits = forward(drawn[:, :-1], positions, mask)
        loss = functional.cross_entropy(logits.flatten(0, 1), drawn[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def torch_gpt_compiled(scale: int) -> Step:
    return torch_gpt(scale, compiled=True)


PROGRAMS: dict[str, tuple[str, Callable[[int], Step]]] = {
    "gpt": ("GPT in plain pytrees, jitted", gpt),
    "linen": ("flax linen transformer", linen),
    "nnx": ("flax nnx transformer", nnx),
    "resnet": ("ResNet, flax linen", resnet),
    "unet": ("diffusion UNet, flax linen", unet),
    "lstm": ("LSTM by `scan`, 64 steps", lstm),
    "decode": ("decode of one token, KV cache", decode),
    "gpt-eager-update": ("GPT, optimizer not jitted", gpt_eager_update),
    "gpt-unjitted": ("GPT, nothing jitted", gpt_unjitted),
    "torch": ("GPT in torch, eager", torch_gpt),
    "torch-compile": ("GPT in torch, `torch.compile`", torch_gpt_compiled),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    step = PROGRAMS[options.program][1](options.scale)
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
