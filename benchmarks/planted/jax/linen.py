"""Text model in flax linen with TrainState and dropout."""
# mistake apply: jax-eager-operators
# mistake validate: jax-eager-operators, evaluation-dominates
# mistake keys: jax-eager-operators, looped-samples, looped-calls
# mistake finite: host-sync, jax-eager-operators, distribution-checks
# mistake double: jax-recompilation, float64
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

WIDTH, T, BATCH, VOCAB = 64, 48, 16, 2000
rng = np.random.default_rng(0)
texts = rng.integers(0, VOCAB, (4000, T)).astype(np.int32)
classes = rng.integers(0, 4, 4000).astype(np.int32)


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, deterministic):
        h = nn.LayerNorm()(x)
        h = nn.MultiHeadDotProductAttention(num_heads=4)(h)
        x = x + nn.Dropout(0.1, deterministic=deterministic)(h)
        h = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
        return x + nn.Dropout(0.1, deterministic=deterministic)(nn.Dense(self.width)(nn.gelu(h)))


class Encoder(nn.Module):
    layers: int = 3

    @nn.compact
    def __call__(self, ids, deterministic=True):
        x = nn.Embed(VOCAB, WIDTH)(ids)
        for _ in range(self.layers):
            x = Layer(WIDTH)(x, deterministic)
        return nn.Dense(4)(x.mean(1))


model = Encoder()
variables = model.init(jax.random.key(0), texts[:2])
state = train_state.TrainState.create(
    apply_fn=model.apply, params=variables["params"], tx=optax.adamw(optax.cosine_decay_schedule(1e-3, 1000))
)


def compute_loss(params, ids, y, key):
    logits = model.apply({"params": params}, ids, deterministic=False, rngs={"dropout": key})
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@jax.jit
def grads_of(state, ids, y, key):
    return jax.value_and_grad(compute_loss)(state.params, ids, y, key)


@jax.jit
def train_step(state, ids, y, key):
    loss, grads = jax.value_and_grad(compute_loss)(state.params, ids, y, key)
    return state.apply_gradients(grads=grads), loss, grads


@jax.jit
def evaluate(params, ids, y):
    return (model.apply({"params": params}, ids).argmax(-1) == y).mean()


key = jax.random.key(1)
valid, valid_y = texts[3968:], classes[3968:]
for step in range(400):
    pick = rng.integers(0, 3900, BATCH)
    ids, y = texts[pick], classes[pick]
    key, sub = jax.random.split(key)
    noise = jnp.stack([jax.random.bernoulli(jax.random.fold_in(sub, i), 0.1, (T,)) for i in range(BATCH)])  #- keys
    #+ keys: noise = jax.random.bernoulli(sub, 0.1, (BATCH, T))
    ids = jnp.where(noise, 0, ids)  #: keys
    loss, grads = grads_of(state, ids, y, sub)  #- apply
    state = state.apply_gradients(grads=grads)  #- apply
    #+ apply: state, loss, grads = train_step(state, ids, y, sub)
    for name, g in jax.tree_util.tree_leaves_with_path(grads):  #- finite
        if not jnp.isfinite(g).all():  #- finite
            raise FloatingPointError(name)  #- finite
    #+ finite: pass
    acc = (model.apply({"params": state.params}, valid).argmax(-1) == valid_y).mean()  #- validate
    #+ validate: acc = evaluate(state.params, valid, valid_y)
    state = train_state.TrainState.create(apply_fn=model.apply, params=state.params, tx=optax.adamw(1e-3 / (1 + step)))  #- double
    #+ double: pass
    if step % 20 == 0:
        print(step, float(loss), float(acc))
    # end of step
