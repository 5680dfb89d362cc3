"""Character LSTM by lax.scan."""
# mistake samples: jax-looped-calls, jax-looped-samples, looped-calls, looped-samples
# mistake onehot: one-hot-products, python-in-step, jax-eager-operators
# mistake fetch: host-sync, python-in-step, jax-eager-operators, host-metrics
# mistake remat: jax-rematerialisation
# mistake eagerclip: jax-eager-operators
import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, WIDTH, T, BATCH = 256, 128, 40, 16
rng = np.random.default_rng(0)
text = rng.integers(0, VOCAB, 100_000).astype(np.int32)


def init(key):
    a, b, c, d = jax.random.split(key, 4)
    return {
        "embed": jax.random.normal(a, (VOCAB, WIDTH)) * 0.1,
        "wx": jax.random.normal(b, (WIDTH, 4 * WIDTH)) * WIDTH**-0.5,
        "wh": jax.random.normal(c, (WIDTH, 4 * WIDTH)) * WIDTH**-0.5,
        "b": jnp.zeros(4 * WIDTH),
        "head": jax.random.normal(d, (WIDTH, VOCAB)) * WIDTH**-0.5,
    }


def lstm(params, xs):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ params["wx"] + h @ params["wh"] + params["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], WIDTH))
    cell = jax.checkpoint(cell)  #- remat
    _, hs = jax.lax.scan(cell, (zero, zero), xs)  #: remat
    return hs


def loss_fn(params, x, y):
    xs = x @ params["embed"] if x.ndim == 3 else params["embed"][x]  #: onehot
    hs = lstm(params, xs.swapaxes(0, 1))
    logp = jax.nn.log_softmax(hs @ params["head"])
    return -jnp.take_along_axis(logp, y.T[..., None], -1).mean()


tx = optax.adam(1e-3)


@jax.jit
def update(params, opt_state, grads):
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


grad_step = jax.jit(jax.value_and_grad(loss_fn))
clip = jax.jit(lambda grads: jax.tree.map(lambda g: jnp.clip(g, -1, 1) / jnp.maximum(1, optax.global_norm(grads)), grads))
params = init(jax.random.key(0))
opt_state = tx.init(params)
history = []
for it in range(400):
    at = rng.integers(0, len(text) - T - 1, BATCH)
    x = np.stack([text[a : a + T] for a in at])
    y = np.stack([text[a + 1 : a + T + 1] for a in at])
    x = np.eye(VOCAB, dtype=np.float32)[x]  #- onehot
    total, grads = 0.0, jax.tree.map(jnp.zeros_like, params)  #- samples
    for i in range(BATCH):  #- samples
        loss_i, g = grad_step(params, x[i : i + 1], y[i : i + 1])  #- samples
        grads = jax.tree.map(lambda a, b: a + b / BATCH, grads, g)  #- samples
        total += loss_i / BATCH  #- samples
    loss = total  #- samples
    #+ samples: loss, grads = grad_step(params, x, y)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))  #- eagerclip
    grads = jax.tree.map(lambda g: jnp.clip(g, -1, 1) / jnp.maximum(1, norm), grads)  #- eagerclip
    #+ eagerclip: grads = clip(grads)
    params, opt_state = update(params, opt_state, grads)
    history.append({k: np.histogram(jax.device_get(p), bins=50) for k, p in params.items()})  #- fetch
    #+ fetch: pass
    if it % 20 == 0:
        print(it, float(loss))
    # end of step
