"""REINFORCE with a baseline on many carts: numpy environments, a policy in jax."""
# mistake act: jax-eager-operators
# mistake envs: jax-looped-calls, jax-looped-samples, looped-calls, jax-eager-operators, python-in-step, host-sync
# mistake returns: jax-eager-operators, looped-samples, python-in-step
# mistake update: jax-eager-operators
# mistake split: jax-eager-operators
import jax
import jax.numpy as jnp
import numpy as np
import optax

ENVS, HORIZON, HIDDEN = 16, 20, 64
rng = np.random.default_rng(0)


class Carts:
    def __init__(self, n):
        self.state = rng.normal(size=(n, 4)).astype(np.float32) * 0.05

    def step(self, action):
        x, v, a, w = self.state.T
        force = np.where(action == 1, 1.0, -1.0)
        acc = 9.8 * np.sin(a) - force * np.cos(a)
        self.state = np.stack([x + 0.02 * v, v + 0.02 * force, a + 0.02 * w, w + 0.02 * acc], 1).astype(np.float32)
        done = np.abs(self.state[:, 2]) > 0.3
        self.state[done] = rng.normal(size=(done.sum(), 4)) * 0.05
        return self.state, np.where(done, -1.0, 1.0).astype(np.float32)


def init(key):
    a, b, c, d = jax.random.split(key, 4)
    return {
        "w1": jax.random.normal(a, (4, HIDDEN)) * 0.5,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(b, (HIDDEN, HIDDEN)) * 0.1,
        "b2": jnp.zeros(HIDDEN),
        "pi": jax.random.normal(c, (HIDDEN, 2)) * 0.1,
        "v": jax.random.normal(d, (HIDDEN, 1)) * 0.1,
    }


def net(p, obs):
    h = jnp.tanh(obs @ p["w1"] + p["b1"])  #: act+update
    h = jnp.tanh(h @ p["w2"] + p["b2"])  #: act+update
    return h @ p["pi"], (h @ p["v"])[..., 0]  #: act+update


def act(params, obs, key):
    logits, _ = net(params, obs)
    return jax.random.categorical(key, logits)  #: act


def loss_fn(params, obs, actions, returns):
    logits, values = net(params, obs)
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], -1)[..., 0]
    advantage = returns - values
    return -(logp * jax.lax.stop_gradient(advantage)).mean() + 0.5 * (advantage**2).mean()


tx = optax.adam(1e-3)


def learn(params, opt_state, obs, actions, returns):
    loss, grads = jax.value_and_grad(loss_fn)(params, obs, actions, returns)  #: update
    updates, opt_state = tx.update(grads, opt_state, params)  #: update
    return optax.apply_updates(params, updates), opt_state, loss


act_fast = jax.jit(act)
learn_fast = jax.jit(learn)


@jax.jit
def next_keys(key):
    key, sub = jax.random.split(key)
    return key, sub


@jax.jit
def discounted(rewards):
    def back(g, r):
        g = r + 0.97 * g
        return g, g

    return jax.lax.scan(back, jnp.zeros(ENVS), rewards, reverse=True)[1]


params = init(jax.random.key(0))
opt_state = tx.init(params)
carts = Carts(ENVS)
key = jax.random.key(1)
obs = carts.state
for it in range(400):
    seen, acted, rewards = [], [], []
    for t in range(HORIZON):
        key, sub = jax.random.split(key)  #- split
        #+ split: key, sub = next_keys(key)
        action = act(params, obs, sub)  #- act
        action = np.array([int(act_fast(params, obs[i], jax.random.fold_in(sub, i))) for i in range(ENVS)])  #- envs
        #+ act|envs: action = act_fast(params, obs, sub)
        action = np.asarray(action)
        seen.append(obs)
        acted.append(action)
        obs, reward = carts.step(action)
        rewards.append(reward)
    g, returns = jnp.zeros(ENVS), []  #- returns
    for r in reversed(rewards):  #- returns
        g = r + 0.97 * g  #- returns
        returns.insert(0, g)  #- returns
    returns = jnp.stack(returns)  #- returns
    #+ returns: returns = discounted(np.stack(rewards))
    params, opt_state, loss = learn(params, opt_state, np.stack(seen), np.stack(acted), returns)  #- update
    #+ update: params, opt_state, loss = learn_fast(params, opt_state, np.stack(seen), np.stack(acted), returns)
    if it % 20 == 0:
        print(it, float(loss), float(np.mean(rewards)))
    # end of step
