"""A small GPT in plain JAX, trained on random tokens. Its state is not donated."""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()


def init(key):
    keys = iter(jax.random.split(key, 2 + 4 * args.layers))

    def weights(*shape):
        return 0.02 * jax.random.normal(next(keys), shape)

    width = args.width
    return {
        "tokens": weights(args.tokens, width),
        "positions": weights(args.length, width),
        "blocks": [
            {
                "qkv": weights(width, 3 * width),
                "project": weights(width, width),
                "up": weights(width, 4 * width),
                "down": weights(4 * width, width),
            }
            for _ in range(args.layers)
        ],
    }


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5)


def attention(x, block):
    batch, length, width = x.shape
    parts = jnp.split(norm(x) @ block["qkv"], 3, -1)
    q, k, v = (p.reshape(batch, length, args.heads, -1).transpose(0, 2, 1, 3) for p in parts)
    scores = q @ k.transpose(0, 1, 3, 2) / jnp.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return x + mixed @ block["project"]


def loss_of(params, tokens):
    x = params["tokens"][tokens] + params["positions"]
    for block in params["blocks"]:
        x = attention(x, block)
        x = x + jax.nn.gelu(norm(x) @ block["up"]) @ block["down"]
    logits = norm(x)[:, :-1] @ params["tokens"].T
    chosen = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(chosen, tokens[:, 1:, None], -1).mean()


@jax.jit
def step(params, momentum, tokens):
    loss, slopes = jax.value_and_grad(loss_of)(params, tokens)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, slopes)
    params = jax.tree.map(lambda p, m: p - 1e-2 * m, params, momentum)
    return params, momentum, loss


params = init(jax.random.key(0))
momentum = jax.tree.map(jnp.zeros_like, params)
key = jax.random.key(1)
for number in range(args.steps):
    key, use = jax.random.split(key)
    tokens = jax.random.randint(use, (args.batch, args.length), 0, args.tokens)
    params, momentum, loss = step(params, momentum, tokens)
    if number % 100 == 0:
        print(f"{number}: {float(loss):.3f}")
