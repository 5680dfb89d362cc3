"""Fits a chain of driven pendulums to measured motion: Runge-Kutta by lax.scan, optax."""
# mistake unjitted: jax-eager-operators
# mistake horizon: jax-recompilation
# mistake single: jax-looped-calls, looped-calls, jax-looped-samples, jax-eager-operators
# mistake drive: python-in-step, main-process-data, looped-samples
# mistake watch: host-sync, host-metrics, jax-eager-operators, python-in-step
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

LINKS, BATCH, STEPS, DT = 8, 16, 40, 0.02
rng = np.random.default_rng(0)
frequencies = rng.uniform(0.5, 3.0, (2000, 3)).astype(np.float32)
first = rng.normal(size=(2000, 2, LINKS)).astype(np.float32)
measured = rng.normal(size=(2000, STEPS, LINKS)).astype(np.float32)
times = np.arange(STEPS, dtype=np.float32) * DT


def init(key):
    a, b = jax.random.split(key)
    return {
        "gravity": jnp.full(LINKS, 9.8),
        "damping": jnp.full(LINKS, 0.1),
        "coupling": jax.random.normal(a, (LINKS, LINKS)) * 0.05,
        "hidden": jax.random.normal(b, (LINKS + 1, 32)) * 0.1,
        "out": jnp.zeros((32, LINKS)),
    }


def derivative(params, state, drive):
    angle, speed = state
    inputs = jnp.concatenate([angle, drive[None]])
    residual = jnp.tanh(inputs @ params["hidden"]) @ params["out"]
    force = -params["gravity"] * jnp.sin(angle) - params["damping"] * speed
    return jnp.stack([speed, force + params["coupling"] @ angle + residual])


def runge_kutta(params, state, drive):
    k1 = derivative(params, state, drive)
    k2 = derivative(params, state + 0.5 * DT * k1, drive)
    k3 = derivative(params, state + 0.5 * DT * k2, drive)
    k4 = derivative(params, state + DT * k3, drive)
    state = state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state, state[0]


def simulate(params, start, drives):
    return jax.lax.scan(partial(runge_kutta, params), start, drives)[1]


def loss_fn(params, starts, drives, targets, horizon=STEPS):
    paths = jax.vmap(simulate, (None, 0, 0))(params, starts, drives[:, :horizon])  #: unjitted
    return ((paths - targets[:, :horizon]) ** 2).mean()  #: unjitted


tx = optax.adam(1e-3)


@jax.jit
def update(params, opt, grads):
    updates, opt = tx.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt


grad_fn = jax.jit(jax.value_and_grad(loss_fn))
grad_to = jax.jit(jax.value_and_grad(loss_fn), static_argnums=4)
params = init(jax.random.key(0))
opt = tx.init(params)
history = []
for it in range(400):
    pick = rng.integers(0, 2000, BATCH)
    starts, targets = first[pick], measured[pick]
    drives = np.array([[sum(float(np.sin(f * t)) for f in frequencies[i]) for t in times] for i in pick], np.float32)  #- drive
    #+ drive: drives = np.sin(frequencies[pick][:, :, None] * times).sum(1)
    loss, grads = jax.value_and_grad(loss_fn)(params, starts, drives, targets)  #- unjitted
    loss, grads = grad_to(params, starts, drives, targets, 10 + it % 30)  #- horizon
    each = [grad_fn(params, starts[i : i + 1], drives[i : i + 1], targets[i : i + 1]) for i in range(BATCH)]  #- single
    loss = sum(one[0] for one in each) / BATCH  #- single
    grads = jax.tree.map(lambda *g: sum(g) / BATCH, *[one[1] for one in each])  #- single
    #+ unjitted|horizon|single: loss, grads = grad_fn(params, starts, drives, targets)
    params, opt = update(params, opt, grads)
    history.append({k: (float(p.mean()), float(jnp.abs(p).max()), float(p.std())) for k, p in params.items()})  #- watch
    #+ watch: pass
    if it % 20 == 0:
        print(it, float(loss))
    # end of step
