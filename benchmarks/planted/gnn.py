"""Graph classification with a batch of small graphs."""
# mistake loop: looped-calls, looped-samples
# mistake norm: rebuilt-tensors
# mistake onehot: one-hot-products

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
NODES, KINDS = 48, 400
adjacency = (torch.rand(NODES, NODES) < 0.1).float()
adjacency = ((adjacency + adjacency.t()) > 0).float()


def normalised(a):
    a = a + torch.eye(NODES)  #: norm
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]  #: norm


FIXED = normalised(adjacency)
WIDE = torch.linalg.matrix_power(FIXED, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(KINDS, 64, bias=False)
        self.a, self.b, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, kinds):
        x = F.one_hot(kinds, KINDS).float() @ self.lift.weight.t()  #- onehot
        #+ onehot: x = F.embedding(kinds, self.lift.weight.t())
        outs = []  #- loop
        for graph in x:  #- loop
            h = F.relu(self.a(FIXED @ graph))  #- loop
            h = F.relu(self.b(FIXED @ h))  #- loop
            outs.append(self.out(h.mean(0)))  #- loop
        return torch.stack(outs)  #- loop
        #+ loop: h = F.relu(self.a(FIXED @ x))
        #+ loop: h = F.relu(self.b(FIXED @ h))
        #+ loop: return self.out(h.mean(1))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
kinds_all = torch.randint(0, KINDS, (600, NODES))
y_all = torch.randint(0, 4, (600,))
for step in range(400):
    batch = torch.randint(0, 600, (32,))
    target = torch.linalg.matrix_power(normalised(adjacency), 3)  #- norm
    #+ norm: target = WIDE
    logits = net(kinds_all[batch])
    loss = F.cross_entropy(logits, y_all[batch]) + 0.01 * (net.a.weight[:NODES, :NODES] * target).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
