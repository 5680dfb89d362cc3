"""Image classifier on small images: optax, a numpy data pipeline."""
# mistake augment: python-in-step, looped-samples, jax-looped-samples, main-process-data
# mistake moved: jax-implicit-transfers, pageable-copies
# mistake printed: jax-host-callbacks
# mistake lambda: jax-recompilation
# mistake eager: jax-eager-operators
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, CLASSES = 32, 10
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (4000, 32, 32, 3), dtype=np.uint8)
labels = rng.integers(0, CLASSES, 4000).astype(np.int32)


def conv(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def init(key):
    sizes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32), (3, 3, 32, 64)]
    keys = jax.random.split(key, len(sizes) + 1)
    return {
        "convs": [jax.random.normal(k, s) * (9 * s[2]) ** -0.5 for k, s in zip(keys, sizes)],
        "head": jax.random.normal(keys[-1], (64, CLASSES)) * 0.1,
    }


def augment(batch):
    out = np.empty_like(batch)
    for i in range(len(batch)):  #- augment
        img = np.pad(batch[i], ((4, 4), (4, 4), (0, 0)), mode="reflect")  #- augment
        y, x = rng.integers(0, 9, 2)  #- augment
        img = img[y : y + 32, x : x + 32]  #- augment
        if rng.random() < 0.5:  #- augment
            img = img[:, ::-1]  #- augment
        img = np.clip((img - img.mean()) * rng.uniform(0.8, 1.2) + img.mean(), 0, 255)  #- augment
        out[i] = img  #- augment
    #+ augment: padded = np.pad(batch, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
    #+ augment: y, x = rng.integers(0, 9, 2)
    #+ augment: out[:] = padded[:, y : y + 32, x : x + 32]
    return out


def logits_fn(params, x):
    x = x.astype(jnp.float32) / 255.0 - 0.5  #: eager
    for i, w in enumerate(params["convs"]):
        x = jax.nn.relu(conv(x, w, stride=2 if i % 2 else 1))  #: eager
    return x.mean((1, 2)) @ params["head"]  #: eager


def loss_fn(params, x, y):
    logits = logits_fn(params, x)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    jax.debug.print("loss {l}", l=loss)  #- printed
    return loss


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
params = init(jax.random.key(0))
opt_state = tx.init(params)


def train_step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def gather_step(params, opt_state, data, targets, index):
    return train_step(params, opt_state, data[index], targets[index])


step_fn = jax.jit(train_step)
hits = jax.jit(lambda p, x, y: (logits_fn(p, x).argmax(-1) == y).mean())
order = rng.permutation(len(images))
for it in range(400):
    index = order[(it * BATCH) % 3968 :][:BATCH]
    x, y = augment(images[index]), labels[index]  #: augment
    params, opt_state, loss = gather_step(params, opt_state, images, labels, index)  #- moved
    #+ moved: params, opt_state, loss = step_fn(params, opt_state, x, y)
    acc = jax.jit(lambda p, x, y: (logits_fn(p, x).argmax(-1) == y).mean())(params, x, y)  #- lambda
    acc = (logits_fn(params, x).argmax(-1) == y).mean()  #- eager
    #+ eager|lambda: acc = hits(params, x, y)
    if it % 20 == 0:
        print(it, float(loss), float(acc))
    # end of step
