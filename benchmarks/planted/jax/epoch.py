"""Small autoencoder: eight steps in one call of lax.scan; two devices on a CPU; equinox."""
# mistake pergroup: jax-looped-calls, jax-eager-operators, looped-calls, jax-looped-samples, python-in-step
# mistake doubles: float64
# mistake onhost: python-in-step, jax-implicit-transfers
# mistake filtered: jax-wrapped-step
# mistake wrapper: jax-recompilation
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)  #- doubles
N, WIDTH, BATCH, STEPS = 256, 128, 32, 8
rng = np.random.default_rng(0)
data = rng.normal(size=(20_000, N)) @ rng.normal(size=(N, N)) / 16  #: doubles
#+ doubles: data = data.astype(np.float32)


class Auto(eqx.Module):
    enc: list
    dec: list

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.enc = [eqx.nn.Linear(N, WIDTH, key=k[0]), eqx.nn.Linear(WIDTH, 16, key=k[1])]
        self.dec = [eqx.nn.Linear(16, WIDTH, key=k[2]), eqx.nn.Linear(WIDTH, N, key=k[3])]

    def __call__(self, x):
        z = self.enc[1](jax.nn.gelu(self.enc[0](x)))
        return self.dec[1](jax.nn.gelu(self.dec[0](z)))


def loss_fn(model, x):
    return ((jax.vmap(model)(x) - x) ** 2).mean()  #: doubles


tx = optax.adamw(1e-3)


def one(model, opt, x):
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, x)  #: doubles
    updates, opt = tx.update(grads, opt, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt, loss


def many(arrays, opt, xs):
    def body(carry, x):
        model, opt = carry
        model = eqx.combine(model, static)
        model, opt, loss = one(model, opt, x)
        return (eqx.partition(model, eqx.is_array)[0], opt), loss

    (arrays, opt), losses = jax.lax.scan(body, (arrays, opt), xs)
    return arrays, opt, losses


model = Auto(jax.random.key(0))
opt = tx.init(eqx.filter(model, eqx.is_array))
arrays, static = eqx.partition(model, eqx.is_array)
train = jax.jit(many, donate_argnums=(0, 1))
single = eqx.filter_jit(one)
single_plain = jax.jit(lambda a, opt, x: (lambda m, o, l: (eqx.filter(m, eqx.is_array), o, l))(*one(eqx.combine(a, static), opt, x)))

for group in range(400):
    index = rng.integers(0, 20_000, (STEPS, BATCH))
    xs = data[index]
    xs = np.stack([[(row - row.mean()) / (row.std() + 1e-6) for row in x] for x in xs])  #- onhost
    #+ onhost: xs = (xs - xs.mean(-1, keepdims=True)) / (xs.std(-1, keepdims=True) + 1e-6)
    for x in xs:  #- filtered
        model, opt, loss = single(model, opt, x)  #- filtered
    losses = jnp.zeros(0)  #- pergroup
    for x in xs:  #- pergroup
        arrays, opt, loss = single_plain(arrays, opt, x)  #- pergroup
        losses = jnp.append(losses, loss)  #- pergroup
    train = jax.jit(lambda a, o, x: many(a, o, x))  #- wrapper
    arrays, opt, losses = train(arrays, opt, xs)  #- wrapper
    #+ filtered|pergroup|wrapper: arrays, opt, losses = train(arrays, opt, xs)
    if group % 20 == 0:
        print(group)
    # end of step
