"""A small vision transformer in equinox, with a moving average of its weights."""
# mistake crops: python-in-step, looped-samples, jax-looped-samples, main-process-data
# mistake average: jax-eager-operators
# mistake check: jax-eager-operators, evaluation-dominates
# mistake again: jax-rematerialisation
# mistake labels: jax-eager-operators, python-in-step, one-hot-products, jax-looped-calls
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZE, PATCH, WIDTH, HEADS, LAYERS, BATCH, CLASSES = 32, 8, 64, 4, 4, 32, 20
TOKENS = (SIZE // PATCH) ** 2
rng = np.random.default_rng(0)
photos = rng.integers(0, 256, (1500, 40, 40, 3), dtype=np.uint8)
labels = rng.integers(0, CLASSES, 1500)
valid, valid_labels = jnp.asarray(photos[:64, :SIZE, :SIZE]), jnp.asarray(labels[:64])


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attend: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
        self.attend = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=a)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=b)
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=c)

    def __call__(self, x):
        h = jax.vmap(self.norm1)(x)
        x = x + self.attend(h, h, h)
        h = jax.vmap(self.norm2)(x)
        return x + jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(h)))


class ViT(eqx.Module):
    embed: eqx.nn.Linear
    position: jax.Array
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, LAYERS + 3)
        self.embed = eqx.nn.Linear(3 * PATCH * PATCH, WIDTH, key=keys[0])
        self.position = jax.random.normal(keys[1], (TOKENS, WIDTH)) * 0.02
        self.blocks = [Block(key) for key in keys[3:]]
        self.head = eqx.nn.Linear(WIDTH, CLASSES, key=keys[2])

    def __call__(self, image):
        n = SIZE // PATCH
        x = image.astype(jnp.float32) / 255 - 0.5  #: check
        x = x.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 1, 3, 4).reshape(TOKENS, -1)  #: check
        x = jax.vmap(self.embed)(x) + self.position  #: check
        for block in self.blocks:  #: check
            x = eqx.filter_checkpoint(block)(x)  #- again
            #+ again: x = block(x)  #: check
        return self.head(x.mean(0))  #: check


def loss_fn(arrays, images, targets):
    logits = jax.vmap(eqx.combine(arrays, static))(images)  #: again
    return optax.softmax_cross_entropy(logits, targets).mean()


tx = optax.adamw(3e-4)


@jax.jit
def train_step(arrays, opt, images, targets):
    loss, grads = jax.value_and_grad(loss_fn)(arrays, images, targets)
    updates, opt = tx.update(grads, opt, arrays)
    return optax.apply_updates(arrays, updates), opt, loss


def blend(mean, arrays):
    return jax.tree.map(lambda m, a: 0.99 * m + 0.01 * a, mean, arrays)  #: average


def accuracy(arrays):
    logits = jax.vmap(eqx.combine(arrays, static))(valid)  #: check
    return (logits.argmax(-1) == valid_labels).mean()  #: check


blend_fast, accuracy_fast = jax.jit(blend), jax.jit(accuracy)
arrays, static = eqx.partition(ViT(jax.random.key(0)), eqx.is_array)
opt = tx.init(arrays)
mean = arrays
for it in range(400):
    pick = rng.integers(0, 1500, BATCH)
    images = []  #- crops
    for photo in photos[pick]:  #- crops
        y, x = rng.integers(0, 9, 2)  #- crops
        photo = photo[y : y + SIZE, x : x + SIZE].astype(np.float64)  #- crops
        photo = photo * rng.uniform(0.8, 1.2, 3) + rng.normal(0, 4, photo.shape)  #- crops
        images.append(np.clip(photo, 0, 255).astype(np.uint8))  #- crops
    images = np.stack(images)  #- crops
    #+ crops: y, x = rng.integers(0, 9, 2)
    #+ crops: images = photos[pick][:, y : y + SIZE, x : x + SIZE]
    targets = jnp.stack([jax.nn.one_hot(label, CLASSES) * 0.9 + 0.1 / CLASSES for label in labels[pick]])  #- labels
    #+ labels: targets = np.eye(CLASSES, dtype=np.float32)[labels[pick]] * 0.9 + 0.1 / CLASSES
    arrays, opt, loss = train_step(arrays, opt, images, targets)  #: labels
    mean = blend(mean, arrays)  #- average
    #+ average: mean = blend_fast(mean, arrays)
    if it % 4 == 0:
        score = accuracy(mean)  #- check
        #+ check: score = accuracy_fast(mean)
    if it % 20 == 0:
        print(it, float(loss), float(score))
    # end of step
