"""TD3 on a toy control task."""
# mistake replay: python-in-step, main-process-data, rebuilt-tensors
# mistake polyak: looped-parameters, copied-state
# mistake target: no-grad-missing, unused-gradients
# mistake normalise: python-in-step, looped-samples
# mistake rows: looped-samples, looped-calls, rebuilt-tensors
import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
OBS, ACT, HIDDEN, BATCH = 24, 4, 128, 256
gamma, tau, noise, clip = 0.99, 0.005, 0.2, 0.5


class Task:
    def __init__(self):
        self.m = np.random.randn(OBS, OBS).astype(np.float32) * 0.1
        self.u = np.random.randn(OBS, ACT).astype(np.float32) * 0.3

    def reset(self):
        self.x, self.n = np.random.randn(OBS).astype(np.float32), 0
        return self.x

    def step(self, a):
        self.x = np.tanh(self.x + self.m @ self.x + self.u @ a)
        self.n += 1
        return self.x, float(-np.abs(self.x).sum()), self.n >= 100


class Running:
    """A running mean and variance of the observations."""

    def __init__(self):
        self.n, self.mean, self.var = 1, [0.0] * OBS, [1.0] * OBS
        self.array_mean, self.array_var = np.zeros(OBS, np.float32), np.ones(OBS, np.float32)

    def update(self, batch):
        self.n += 1
        #+ normalise: rows = batch.numpy()
        #+ normalise: self.array_mean += (rows.mean(0) - self.array_mean) / self.n
        #+ normalise: self.array_var += (rows.var(0) - self.array_var) / self.n
        for i in range(OBS):  #- normalise
            column = [float(row[i]) for row in batch]  #- normalise
            m = sum(column) / len(column)  #- normalise
            v = sum((c - m) ** 2 for c in column) / len(column)  #- normalise
            self.mean[i] += (m - self.mean[i]) / self.n  #- normalise
            self.var[i] += (v - self.var[i]) / self.n  #- normalise

    def apply(self, batch):
        return (batch - torch.from_numpy(self.array_mean)) / torch.from_numpy(self.array_var).sqrt()


class Replay:
    def __init__(self, size=50_000):
        self.size, self.storage = size, []
        self.data = [np.zeros((size, n), np.float32) for n in (OBS, ACT, 1, OBS, 1)]
        self.n = 0

    def add(self, *row):
        #+ replay: for array, value in zip(self.data, row):
        #+ replay:     array[self.n % self.size] = value
        self.storage.append(row)  #- replay
        if len(self.storage) > self.size:  #- replay
            self.storage.pop(0)  #- replay
        self.n += 1

    def sample(self, count):
        index = np.random.randint(0, min(self.n, self.size), count)
        #+ replay: return [torch.from_numpy(array[index]) for array in self.data]
        s, a, r, s2, d = [], [], [], [], []  #- replay
        for i in index:  #- replay
            S, A, R, S2, D = self.storage[i]  #- replay
            s.append(np.array(S, copy=False))  #- replay
            a.append(np.array(A, copy=False))  #- replay
            r.append(R)  #- replay
            s2.append(np.array(S2, copy=False))  #- replay
            d.append(D)  #- replay
        out = [np.array(s), np.array(a), np.array(r).reshape(-1, 1), np.array(s2), np.array(d).reshape(-1, 1)]  #- replay
        return [torch.FloatTensor(o) for o in out]  #- replay


def net(i, o):
    return nn.Sequential(nn.Linear(i, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, o))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = net(OBS + ACT, 1), net(OBS + ACT, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], 1)
        return self.q1(x), self.q2(x)


class Agent:
    def __init__(self):
        self.actor = nn.Sequential(net(OBS, ACT), nn.Tanh())
        self.critic = Critic()
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.running = Running()
        self.replay = Replay()
        self.updates = 0

    def act(self, s):
        with torch.no_grad():
            return self.actor(torch.from_numpy(s)).numpy()

    def soft_update(self, source, target):
        #+ polyak: with torch.no_grad():
        #+ polyak:     torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)
        for p, tp in zip(source.parameters(), target.parameters()):  #- polyak
            tp.data.copy_(tau * p.data + (1 - tau) * tp.data)  #- polyak

    def train(self):
        self.updates += 1
        s, a, r, s2, d = self.replay.sample(BATCH)  #: replay
        self.running.update(s)  #: normalise
        s, s2 = self.running.apply(s), self.running.apply(s2)
        #+ target: with torch.no_grad():
        #+ target:     eps = (torch.randn_like(a) * noise).clamp(-clip, clip)
        #+ target:     a2 = (self.actor_target(s2) + eps).clamp(-1, 1)
        #+ target:     y = r + (1 - d) * gamma * torch.min(*self.critic_target(s2, a2))
        eps = (torch.randn_like(a) * noise).clamp(-clip, clip)  #- target
        a2 = (self.actor_target(s2) + eps).clamp(-1, 1)  #- target
        y = r + (1 - d) * gamma * torch.min(*self.critic_target(s2, a2))  #- target
        q1, q2 = self.critic(s, a)
        critic_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        self.critic_opt.zero_grad()
        critic_loss.backward()  #: target
        self.critic_opt.step()
        actor_loss = -self.critic.q1(torch.cat([s, self.actor(s)], 1)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.soft_update(self.critic, self.critic_target)  #: polyak
        self.soft_update(self.actor, self.actor_target)  #: polyak
        #+ rows: spread = (s[:, None] - s[None]).norm(dim=-1).mean()
        spread = 0.0  #- rows
        for row in s:  #- rows
            spread += (s - row).norm(dim=1).mean()  #- rows
        spread = spread / len(s)  #- rows
        return spread


env = Task()
agent = Agent()
state = env.reset()
for t in range(20_000):
    action = np.random.uniform(-1, 1, ACT).astype(np.float32) if t < 2000 else agent.act(state)
    after, reward, over = env.step(action)
    agent.replay.add(state, action, reward, after, float(over))
    state = env.reset() if over else after
    if t >= 2000:
        agent.train()
        # end of step
