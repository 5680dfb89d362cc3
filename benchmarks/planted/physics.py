"""A physics-informed network: the residual of a differential equation."""
# mistake create: retained-graph
# mistake grid: rebuilt-tensors, python-in-step

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def boundary():
    return torch.tensor([[x / 300, t] for x in range(300) for t in (0.0, 1.0)])  #: grid


EDGE = boundary()
for step in range(500):
    points = torch.rand(256, 2, requires_grad=True)
    u = net(points)
    du = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    d2 = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)[0][:, :1]
    residual = (du[:, 1:] - 0.1 * d2).pow(2).mean()
    edge = boundary()  #- grid
    #+ grid: edge = EDGE
    loss = residual + net(edge).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(create_graph=True)  #- create
    #+ create: loss.backward()
    optimizer.step()
    # end of step
