"""Advantage actor critic on a toy control problem, many environments."""
# mistake env: looped-samples, looped-calls, python-in-step, host-metrics
# mistake gae: looped-samples, looped-calls, python-in-step
# mistake oldpi: no-grad-missing, repeated-forward, unused-gradients
# mistake validate: distribution-checks
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

ENVS, T, GAMMA, LAM = 16, 16, 0.99, 0.95
rng = np.random.default_rng(0)
torch.manual_seed(0)


class CartLike:
    def __init__(self):
        self.state = rng.normal(size=4)

    def step(self, action):
        x, v, a, w = self.state  #: env
        force = 1.0 if action == 1 else -1.0  #: env
        for _ in range(4):  #: env
            acc = force - 0.1 * np.sin(a)  #: env
            v, w = v + 0.02 * acc, w + 0.02 * (np.sin(a) - acc)  #: env
            x, a = x + 0.02 * v, a + 0.02 * w  #: env
        self.state = np.array([x, v, a, w])  #: env
        done = abs(a) > 2  #: env
        if done:
            self.state = rng.normal(size=4)
        return self.state, 1.0, done


class Vec:
    """The same environments, as arrays."""

    def __init__(self):
        self.state = rng.normal(size=(ENVS, 4))

    def step(self, action):
        x, v, a, w = self.state.T
        force = np.where(action == 1, 1.0, -1.0)
        for _ in range(4):
            acc = force - 0.1 * np.sin(a)
            v, w = v + 0.02 * acc, w + 0.02 * (np.sin(a) - acc)
            x, a = x + 0.02 * v, a + 0.02 * w
        self.state = np.stack([x, v, a, w], 1)
        done = np.abs(a) > 2
        self.state[done] = rng.normal(size=(done.sum(), 4))
        return self.state, np.ones(ENVS), done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.pi, self.v = nn.Linear(128, 2), nn.Linear(128, 1)

    def forward(self, s):
        h = self.trunk(s)
        return self.pi(h), self.v(h).squeeze(-1)


net = ActorCritic()
opt = torch.optim.RMSprop(net.parameters(), lr=7e-4)
envs, vec = [CartLike() for _ in range(ENVS)], Vec()
obs = np.stack([e.state for e in envs])
for update in range(600):
    states, actions, rewards, dones, logps, values = [], [], [], [], [], []
    for t in range(T):
        s = torch.as_tensor(obs, dtype=torch.float32)
        logits, value = net(s)  #- oldpi
        #+ oldpi: with torch.no_grad(): logits, value = net(s)
        dist = Categorical(logits=logits)  #- validate
        #+ validate: dist = Categorical(logits=logits, validate_args=False)
        a = dist.sample()
        logps.append(dist.log_prob(a).detach())
        values.append(value.detach())
        results = [e.step(int(x)) for e, x in zip(envs, a)]  #- env
        obs = np.stack([r[0] for r in results])  #- env
        reward, done = [r[1] for r in results], [r[2] for r in results]  #- env
        #+ env: obs, reward, done = vec.step(a.numpy())
        states.append(s)
        actions.append(a)
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        dones.append(torch.as_tensor(done, dtype=torch.float32))
    with torch.no_grad():
        last = net(torch.as_tensor(obs, dtype=torch.float32))[1]
    values.append(last)
    adv = torch.zeros(T, ENVS)
    for e in range(ENVS):  #- gae
        run = torch.tensor(0.0)  #- gae
        for t in reversed(range(T)):  #- gae
            delta = rewards[t][e] + GAMMA * values[t + 1][e] * (1 - dones[t][e]) - values[t][e]  #- gae
            run = delta + GAMMA * LAM * (1 - dones[t][e]) * run  #- gae
            adv[t, e] = run  #- gae
    #+ gae: run = torch.zeros(ENVS)
    #+ gae: for t in reversed(range(T)):
    #+ gae:     delta = rewards[t] + GAMMA * values[t + 1] * (1 - dones[t]) - values[t]
    #+ gae:     run = delta + GAMMA * LAM * (1 - dones[t]) * run
    #+ gae:     adv[t] = run
    returns = (adv + torch.stack(values[:-1])).flatten()
    S, A, L = torch.cat(states), torch.cat(actions), torch.cat(logps)
    logits, v = net(S)
    dist = Categorical(logits=logits)
    ratio = (dist.log_prob(A) - L).exp()
    loss = -(ratio * adv.flatten()).mean() + 0.5 * (returns - v).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    # end of step
