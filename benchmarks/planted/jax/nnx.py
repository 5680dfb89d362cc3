"""Transformer classifier in flax nnx."""
# mistake unjitted: jax-eager-operators
# mistake metrics: jax-eager-operators, host-sync, jax-wrapped-step
# mistake wide: float64
# mistake wrapped: jax-wrapped-step
# mistake modes: jax-recompilation
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

jax.config.update("jax_enable_x64", True)  #- wide
WIDTH, HEADS, LAYERS, T, BATCH, CLASSES = 64, 4, 4, 32, 16, 5
rng = np.random.default_rng(0)
tokens = rng.integers(0, 1000, (2000, T))
labels = rng.integers(0, CLASSES, 2000)
positions = np.sin(np.arange(T)[:, None] / 10000 ** (np.arange(WIDTH) / WIDTH))  #: wide


class Block(nnx.Module):
    def __init__(self, rngs):
        self.ln1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, rngs=rngs, decode=False)
        self.ln2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.down(nnx.gelu(self.up(self.ln2(x))))


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(1000, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids) + positions  #: wide
        for block in self.blocks:
            x = block(x)  #: wide
        return self.head(x.mean(1))


def loss_fn(model, x, y, smoothing):
    logits = model(x)  #: wide
    targets = optax.smooth_labels(jax.nn.one_hot(y, CLASSES), smoothing)
    return optax.softmax_cross_entropy(logits, targets).mean(), logits


def train_step(model, optimizer, x, y, smoothing):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, x, y, smoothing)  #: unjitted
    optimizer.update(model, grads)  #: unjitted
    return loss, logits


model = Classifier(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
jitted = nnx.jit(train_step)
static_jitted = nnx.jit(train_step, static_argnames="smoothing")  #- modes
cached = nnx.cached_partial(jitted, model, optimizer)

for step in range(400):
    index = rng.integers(0, 2000, BATCH)
    x, y = jnp.asarray(tokens[index]), jnp.asarray(labels[index])
    smoothing = 0.1 * (1 - step / 400)
    loss, logits = train_step(model, optimizer, x, y, smoothing)  #- unjitted
    loss, logits = jitted(model, optimizer, x, y, smoothing)  #- wrapped
    loss, logits = static_jitted(model, optimizer, x, y, smoothing=smoothing)  #- modes
    #+ unjitted|wrapped|modes: loss, logits = cached(x, y, smoothing)
    metrics.update(loss=loss, logits=logits, labels=y)  #- metrics
    #+ metrics: pass
    if step % 20 == 0:
        print(step, float(loss))
    # end of step
