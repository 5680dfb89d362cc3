"""Node classification on one graph, full batch."""
# mistake adjacency: rebuilt-tensors
# mistake select: rebuilt-tensors, repeated-calls, looped-calls
# mistake validate: no-grad-missing, evaluation-dominates, recorded-evaluation, repeated-forward
# mistake layer: modules-made, rebuilt-tensors, python-in-step
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
NODES, EDGES, FEATURES, HIDDEN, CLASSES = 1500, 9000, 300, 64, 7
edges = torch.randint(0, NODES, (2, EDGES))
features = torch.rand(NODES, FEATURES)
labels = torch.randint(0, CLASSES, (NODES,))
order = torch.randperm(NODES)
train_mask = torch.zeros(NODES, dtype=torch.bool)
train_mask[order[:600]] = True
val_mask = torch.zeros(NODES, dtype=torch.bool)
val_mask[order[600:900]] = True


def normalised_adjacency(edges):
    adjacency = torch.zeros(NODES, NODES)  #: adjacency
    adjacency[edges[0], edges[1]] = 1  #: adjacency
    adjacency[edges[1], edges[0]] = 1  #: adjacency
    adjacency = adjacency + torch.eye(NODES)  #: adjacency
    scale = adjacency.sum(1).pow(-0.5)  #: adjacency
    return scale[:, None] * adjacency * scale[None, :]  #: adjacency


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.gate = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, adjacency):
        skip = nn.Linear(FEATURES, HIDDEN)(x)  #- layer
        #+ layer: skip = self.gate(x)
        h = adjacency @ self.first(x) + skip
        h = F.dropout(F.relu(h), 0.5, self.training)
        return adjacency @ self.second(h)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
A = normalised_adjacency(edges)
train_ids = train_mask.nonzero().squeeze(1)
for epoch in range(400):
    model.train()
    A = normalised_adjacency(edges)  #- adjacency
    logits = model(features, A)
    #+ select: loss = F.cross_entropy(logits[train_ids], labels[train_ids])
    total = 0.0  #- select
    for i in train_mask.nonzero():  #- select
        total = total + F.cross_entropy(logits[i], labels[i])  #- select
    loss = total / train_mask.sum()  #- select
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    #+ validate: if epoch % 20 == 19:
    #+ validate:     with torch.no_grad():
    #+ validate:         guess = model(features, A).argmax(1)
    #+ validate:     accuracy = (guess[val_mask] == labels[val_mask]).float().mean().item()
    guess = model(features, A).argmax(1)  #- validate
    accuracy = (guess[val_mask] == labels[val_mask]).float().mean().item()  #- validate
    # end of step
