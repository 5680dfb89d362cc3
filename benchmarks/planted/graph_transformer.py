"""A transformer over small graphs, with distances between nodes as a bias of attention."""
# mistake paths: python-in-step, looped-samples, looped-calls, host-metrics, main-process-data

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
NODES, HEADS, WIDTH, FAR = 24, 4, 64, 8


def some_graph():
    near = [set() for _ in range(NODES)]
    for a in range(1, NODES):
        for b in random.sample(range(a), min(a, 2)):
            near[a].add(b)
            near[b].add(a)
    return near


def distances(near):
    """Of each node to each other, by breadth-first search."""
    found = [[FAR] * NODES for _ in range(NODES)]
    for start in range(NODES):
        row, queue = found[start], deque([start])
        row[start] = 0
        while queue:
            node = queue.popleft()
            for other in near[node]:  #: paths
                if row[other] > row[node] + 1:  #: paths
                    row[other] = row[node] + 1  #: paths
                    queue.append(other)  #: paths
    return found


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, bias):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.out(h.transpose(1, 2).reshape(b, n, WIDTH))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.bias = nn.Linear(8, WIDTH), nn.Embedding(FAR + 1, HEADS)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(3)), nn.Linear(WIDTH, 2)

    def forward(self, x, apart):
        h, bias = self.embed(x), self.bias(apart).permute(0, 3, 1, 2)
        for layer in self.layers:
            h = layer(h, bias)
        return self.head(h.mean(1))


graphs = [some_graph() for _ in range(300)]
known = torch.tensor([distances(graph) for graph in graphs])
features, labels = torch.randn(300, NODES, 8), torch.randint(0, 2, (300,))
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(400):
    at = torch.randint(0, 300, (16,)).tolist()
    apart = torch.tensor([distances(graphs[i]) for i in at])  #- paths
    #+ paths: apart = known[at]
    loss = F.cross_entropy(net(features[at], apart), labels[at])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
