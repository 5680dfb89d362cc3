"""Soft actor-critic on a toy environment with a replay buffer."""
# mistake replay: python-in-step, main-process-data
# mistake target: no-grad-missing, unused-gradients
# mistake polyak: looped-parameters, copied-state
# mistake critic: unused-gradients
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
OBS, ACT, BATCH, GAMMA, TAU, ALPHA = 17, 6, 256, 0.99, 0.005, 0.2
Transition = namedtuple("Transition", "obs action reward next_obs done")


class Env:
    def reset(self):
        self.state = np.random.randn(OBS).astype(np.float32)
        self.t = 0
        return self.state

    def step(self, action):
        self.t += 1
        self.state = 0.95 * self.state + 0.1 * np.resize(action, OBS).astype(np.float32)
        return self.state, -float((self.state**2).sum()), self.t >= 200


class ReplayBuffer:
    def __init__(self, size):
        self.memory = deque(maxlen=size)
        self.arrays = None

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        batch = random.sample(self.memory, n)  #: replay
        batch = Transition(*zip(*batch))  #: replay
        return [torch.FloatTensor(np.array([np.asarray(v) for v in field])) for field in batch]  #: replay

    def fast_sample(self, n):
        if self.arrays is None:
            fields = Transition(*zip(*self.memory))
            self.arrays = [torch.from_numpy(np.array(f, dtype=np.float32)) for f in fields]
        rows = torch.randint(0, len(self.arrays[0]), (n,))
        return [a[rows] for a in self.arrays]


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, o))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1)

    def forward(self, obs, action):
        x = torch.cat([obs, action], 1)
        return self.q1(x).squeeze(1), self.q2(x).squeeze(1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS, 2 * ACT)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, 1)
        dist = Normal(mean, log_std.clamp(-5, 2).exp(), validate_args=False)
        raw = dist.rsample()
        action = torch.tanh(raw)
        logp = (dist.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1)
        return action, logp


actor, critic, target = Actor(), Critic(), Critic()
target.load_state_dict(critic.state_dict())
actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_opt = torch.optim.Adam(critic.parameters(), lr=3e-4)
env, buffer = Env(), ReplayBuffer(20000)
obs = env.reset()
for _ in range(3000):
    action = np.random.uniform(-1, 1, ACT).astype(np.float32)
    nxt, reward, done = env.step(action)
    buffer.push(obs, action, reward, nxt, float(done))
    obs = env.reset() if done else nxt

for step in range(3000):
    with torch.no_grad():
        action = actor(torch.from_numpy(obs).unsqueeze(0))[0][0].numpy()
    nxt, reward, done = env.step(action)
    #+ replay: nxt = nxt
    buffer.push(obs, action, reward, nxt, float(done))
    obs = env.reset() if done else nxt
    o, a, r, n, d = buffer.sample(BATCH)  #- replay
    #+ replay: o, a, r, n, d = buffer.fast_sample(BATCH)
    #+ target: with torch.no_grad():
    #+ target:     next_a, next_logp = actor(n)
    #+ target:     t1, t2 = target(n, next_a)
    #+ target:     backup = r + GAMMA * (1 - d) * (torch.min(t1, t2) - ALPHA * next_logp)
    next_a, next_logp = actor(n)  #- target
    t1, t2 = target(n, next_a)  #- target
    backup = r + GAMMA * (1 - d) * (torch.min(t1, t2) - ALPHA * next_logp)  #- target
    q1, q2 = critic(o, a)
    critic_loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
    critic_opt.zero_grad()
    critic_loss.backward()  #: target
    critic_opt.step()
    #+ critic: critic.requires_grad_(False)
    new_a, logp = actor(o)
    p1, p2 = critic(o, new_a)  #: critic
    actor_loss = (ALPHA * logp - torch.min(p1, p2)).mean()
    actor_opt.zero_grad()
    actor_loss.backward()  #: critic
    actor_opt.step()
    #+ critic: critic.requires_grad_(True)
    #+ polyak: with torch.no_grad():
    #+ polyak:     torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), TAU)
    new, old = critic.state_dict(), target.state_dict()  #- polyak
    for key in new:  #- polyak
        new[key] = new[key] * TAU + old[key] * (1 - TAU)  #- polyak
    target.load_state_dict(new)  #- polyak
    # end of step
