"""Generation with a key-value cache, one token a step."""
# mistake grow: jax-recompilation, growing-cache
# mistake keep: jax-no-donation
# mistake sample: jax-eager-operators
# mistake pull: python-in-step, host-sync, host-metrics
# mistake table: jax-implicit-transfers, rebuilt-tensors, python-in-step
# mistake unjitted: jax-eager-operators
# mistake layout: jax-transposed-arguments
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

VOCAB, WIDTH, HEADS, LAYERS, MAX, BATCH = 4000, 192, 6, 4, 1024, 4
D = WIDTH // HEADS
keys = iter(jax.random.split(jax.random.key(0), 64))


def normal(*shape):
    return jax.random.normal(next(keys), shape) * shape[0] ** -0.5


params = {
    "embed": normal(VOCAB, WIDTH),
    "layers": [
        {"qkv": normal(WIDTH, 3 * WIDTH), "o": normal(WIDTH, WIDTH), "up": normal(WIDTH, 4 * WIDTH), "down": normal(4 * WIDTH, WIDTH)}
        for _ in range(LAYERS)
    ],
}


def rms(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def model(params, cache, token, pos, angles):
    x = params["embed"][token]  #: unjitted
    cos, sin = jnp.cos(angles[pos]), jnp.sin(angles[pos])  #: unjitted
    new = []  #: unjitted
    for p, (ck, cv) in zip(params["layers"], cache):  #: unjitted
        q, k, v = jnp.split(rms(x) @ p["qkv"], 3, axis=-1)  #: unjitted
        q, k, v = (z.reshape(-1, HEADS, D) for z in (q, k, v))  #: unjitted
        q, k = q * cos + q[..., ::-1] * sin, k * cos + k[..., ::-1] * sin  #: unjitted
        ck = jax.lax.dynamic_update_slice(ck, k[:, None], (0, pos, 0, 0))  #- layout
        cv = jax.lax.dynamic_update_slice(cv, v[:, None], (0, pos, 0, 0))  #- layout
        scores = jnp.einsum("bhd,bthd->bht", q, ck) / D**0.5  #- layout
        #+ layout: ck = jax.lax.dynamic_update_slice(ck, k[..., None], (0, 0, 0, pos))  #: unjitted
        #+ layout: cv = jax.lax.dynamic_update_slice(cv, v[:, :, None], (0, 0, pos, 0))  #: unjitted
        #+ layout: scores = jnp.einsum("bhd,bhdt->bht", q, ck) / D**0.5  #: unjitted
        scores = jnp.where(jnp.arange(scores.shape[-1]) <= pos, scores, -1e9)  #: unjitted
        y = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), cv)  #- layout
        #+ layout: y = jnp.einsum("bht,bhtd->bhd", jax.nn.softmax(scores), cv)  #: unjitted
        x = x + y.reshape(-1, WIDTH) @ p["o"]  #: unjitted
        x = x + jax.nn.silu(rms(x) @ p["up"]) @ p["down"]  #: unjitted
        new.append((ck, cv))  #: unjitted
    return rms(x) @ params["embed"].T, new  #: unjitted


def pick(logits, key):
    top, index = jax.lax.top_k(logits / 0.8, 50)  #: sample
    choice = jax.random.categorical(key, top)  #: sample
    return jnp.take_along_axis(index, choice[:, None], -1)[:, 0]  #: sample


decode = jax.jit(model)  #- keep
decode = model  #- unjitted
#+ keep|unjitted: decode = jax.jit(model, donate_argnums=1)
pick_fast = jax.jit(pick)
angles = np.arange(20_000)[:, None, None] * 10000.0 ** (-np.arange(D) / D)  #: table
angles = angles.astype(np.float32)
#+ table: angles = jnp.asarray(angles)
size = 4  #- grow
#+ grow: size = MAX
cache = [tuple(jnp.zeros((BATCH, size, HEADS, D)) for _ in range(2)) for _ in range(LAYERS)]  #- layout
#+ layout: cache = [(jnp.zeros((BATCH, HEADS, D, size)), jnp.zeros((BATCH, HEADS, size, D))) for _ in range(LAYERS)]
token = jnp.zeros(BATCH, jnp.int32)
key = jax.random.key(1)
out = []
for pos in range(700):
    if pos >= cache[0][0].shape[3]:  #- grow
        grown = [(jnp.zeros((BATCH, HEADS, D, 1)), 3), (jnp.zeros((BATCH, HEADS, 1, D)), 2)]  #- grow
        cache = [tuple(jnp.concatenate([z, more], axis) for z, (more, axis) in zip(kv, grown)) for kv in cache]  #- grow
    logits, cache = decode(params, cache, token, pos, angles)  #: grow+table+keep+unjitted
    key, sub = jax.random.split(key)
    token = pick(logits, sub)  #- sample
    scores = np.asarray(logits) / 0.8  #- pull
    order = np.argsort(-scores, axis=-1)[:, :50]  #- pull
    probs = np.exp(np.take_along_axis(scores, order, -1))  #- pull
    token = jnp.array([np.random.choice(o, p=p / p.sum()) for o, p in zip(order, probs)], jnp.int32)  #- pull
    #+ sample|pull: token = pick_fast(logits, sub)
    out.append(token)
    # end of step
print(np.stack(out).shape)
