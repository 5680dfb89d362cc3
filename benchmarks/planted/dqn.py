"""Q-learning from a replay buffer."""
# mistake replay: python-in-step, main-process-data, looped-samples
# mistake soft: looped-parameters

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
STATE, ACTIONS, SIZE, B = 24, 4, 5000, 128


def network():
    return nn.Sequential(nn.Linear(STATE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))


def played():
    state, after = [[random.random() for _ in range(STATE)] for _ in range(2)]
    return state, random.randrange(ACTIONS), random.random(), after, float(random.random() < 0.05)


replay = deque((played() for _ in range(SIZE)), maxlen=SIZE)
columns = [torch.tensor(column) for column in zip(*replay)]
q, target = network(), network()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
for step in range(800):
    batch = random.sample(replay, B)  #- replay
    state, action, reward, after, done = [torch.tensor(column) for column in zip(*batch)]  #- replay
    #+ replay: at = torch.randint(0, SIZE, (B,))
    #+ replay: state, action, reward, after, done = [column[at] for column in columns]
    with torch.no_grad():
        goal = reward + 0.99 * (1 - done) * target(after).max(1).values
    loss = F.smooth_l1_loss(q(state).gather(1, action[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target.parameters(), q.parameters()):  #- soft
        slow.data.copy_(0.995 * slow.data + 0.005 * fast.data)  #- soft
    #+ soft: torch._foreach_lerp_([p.data for p in target.parameters()], [p.data for p in q.parameters()], 0.005)
    # end of step
