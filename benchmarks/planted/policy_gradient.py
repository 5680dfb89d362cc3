"""A2C-like updates on stored rollouts."""
# mistake validate: distribution-checks
# mistake returns: python-in-step, looped-calls, looped-samples
# mistake value: unused-gradients, retained-graph

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
critic = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
opt_a = torch.optim.Adam(actor.parameters(), lr=3e-4)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
GAMMA = 0.99
powers = GAMMA ** torch.arange(256)


def returns(rewards):
    out = torch.zeros(256)  #- returns
    running = torch.zeros(())  #- returns
    for t in reversed(range(256)):  #- returns
        running = rewards[t] + GAMMA * running  #- returns
        out[t] = running  #- returns
    return out  #- returns
    #+ returns: return (rewards * powers).flip(0).cumsum(0).flip(0) / powers


for step in range(500):
    states, rewards = torch.randn(256, 16), torch.randn(256)
    actions = torch.randint(0, 6, (256,))
    target = returns(rewards)
    value = critic(states).squeeze(1)
    advantage = target - value  #- value
    #+ value: advantage = target - value.detach()
    policy = Categorical(logits=actor(states))  #- validate
    #+ validate: policy = Categorical(logits=actor(states), validate_args=False)
    actor_loss = -(policy.log_prob(actions) * advantage).mean() - 0.01 * policy.entropy().mean()  #- validate
    #+ validate: actor_loss = -(policy.log_prob(actions) * advantage).mean() - 0.01 * policy.entropy().mean()
    opt_a.zero_grad()
    actor_loss.backward(retain_graph=True)  #- value
    #+ value: actor_loss.backward()
    opt_a.step()
    critic_loss = (target - value).pow(2).mean()
    opt_c.zero_grad()
    critic_loss.backward()
    opt_c.step()
    # end of step
