"""A GPT in plain pytrees, AdamW by hand."""
# mistake adam: jax-eager-operators
# mistake lengths: jax-recompilation
# mistake rate: jax-recompilation
# mistake norms: jax-eager-operators, host-sync, host-metrics, python-in-step
# mistake mask: python-in-step, rebuilt-tensors, main-process-data
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

VOCAB, WIDTH, HEADS, LAYERS, T, BATCH = 512, 96, 4, 3, 64, 8
rng = np.random.default_rng(0)
corpus = rng.integers(0, VOCAB, 50_000).astype(np.int32)


def dense(key, n_in, n_out):
    return {"w": jax.random.normal(key, (n_in, n_out)) * n_in**-0.5, "b": jnp.zeros(n_out)}


def init(key):
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))
    blocks = []
    for _ in range(LAYERS):
        blocks.append(
            {
                "qkv": dense(next(keys), WIDTH, 3 * WIDTH),
                "proj": dense(next(keys), WIDTH, WIDTH),
                "fc": dense(next(keys), WIDTH, 4 * WIDTH),
                "out": dense(next(keys), 4 * WIDTH, WIDTH),
                "ln1": jnp.ones(WIDTH),
                "ln2": jnp.ones(WIDTH),
            }
        )
    return {
        "wte": jax.random.normal(next(keys), (VOCAB, WIDTH)) * 0.02,
        "wpe": jax.random.normal(next(keys), (T, WIDTH)) * 0.02,
        "blocks": blocks,
    }


def norm(scale, x):
    mean = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return scale * (x - mean) * jax.lax.rsqrt(var + 1e-5)


def linear(p, x):
    return x @ p["w"] + p["b"]


def attention(p, x, mask):
    b, t, c = x.shape
    q, k, v = jnp.split(linear(p["qkv"], x), 3, axis=-1)
    q, k, v = (z.reshape(b, t, HEADS, c // HEADS).transpose(0, 2, 1, 3) for z in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / jnp.sqrt(c // HEADS)
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return linear(p["proj"], (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, c))


def forward(params, tokens, mask):
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    for p in params["blocks"]:
        x = x + attention(p, norm(p["ln1"], x), mask)
        x = x + linear(p["out"], jax.nn.gelu(linear(p["fc"], norm(p["ln2"], x))))
    return x @ params["wte"].T


def loss_fn(params, tokens, targets, mask):
    logp = jax.nn.log_softmax(forward(params, tokens, mask))
    return -jnp.take_along_axis(logp, targets[..., None], -1).mean()


def adamw(params, grads, m, v, step, lr):
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)  #: adam
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)  #: adam
    c1, c2 = 1 - 0.9**step, 1 - 0.99**step
    params = jax.tree.map(
        lambda p, m, v: p - lr * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * p), params, m, v  #: adam
    )
    return params, m, v


@partial(jax.jit, static_argnames="lr")  #- rate
#+ rate: @jax.jit  #: lengths
def train_step(params, m, v, step, tokens, targets, mask, lr):  #: rate
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets, mask)
    params, m, v = adamw(params, grads, m, v, step, lr)
    return params, m, v, loss, grads


grad_fn = jax.jit(jax.value_and_grad(loss_fn))
params = init(jax.random.key(0))
m = jax.tree.map(jnp.zeros_like, params)
v = jax.tree.map(jnp.zeros_like, params)
fixed_mask = jnp.tril(jnp.ones((T, T), bool))

for step in range(1, 400):
    t = T
    t = int(rng.integers(16, T + 1))  #- lengths
    starts = rng.integers(0, len(corpus) - T - 1, BATCH)
    tokens = np.stack([corpus[s : s + t] for s in starts])  #: lengths
    targets = np.stack([corpus[s + 1 : s + t + 1] for s in starts])
    mask = np.array([[j <= i for j in range(t)] for i in range(t)])  #- mask
    #+ mask: mask = fixed_mask[:t, :t] if t < T else fixed_mask
    lr = 1e-3 * 0.999**step
    loss, grads = grad_fn(params, tokens, targets, mask)  #- adam
    params, m, v = adamw(params, grads, m, v, step, lr)  #- adam
    #+ adam: params, m, v, loss, grads = train_step(params, m, v, float(step), tokens, targets, mask, lr)  #: lengths+rate
    norms = {jax.tree_util.keystr(k): float(jnp.linalg.norm(g)) for k, g in jax.tree_util.tree_leaves_with_path(grads)}  #- norms
    #+ norms: norms = {}
    if step % 20 == 0:
        print(step, float(loss), max(norms.values(), default=0.0))
    # end of step
