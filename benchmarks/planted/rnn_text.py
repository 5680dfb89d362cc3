"""Sentiment from words with a recurrent network."""
# mistake cell: looped-calls
# mistake padding: padding
# mistake tokens: python-in-step, waiting-for-data

import random
import re

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
WORDS = [f"word{i}" for i in range(2000)]
texts = [" ".join(random.choices(WORDS, k=random.randint(8, 24))) + "." for _ in range(600)]
vocab = {w: i + 1 for i, w in enumerate(WORDS)}
labels = torch.randint(0, 2, (600,))


def tokenize(text):
    return [vocab.get(w, 0) for w in re.findall(r"[a-z0-9]+|[.,!?]", text.lower())]  #: tokens


known = [tokenize(text) for text in texts]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2001, 64, padding_idx=0)
        self.cell = nn.LSTMCell(64, 96)
        self.lstm = nn.LSTM(64, 96, batch_first=True)
        self.out = nn.Linear(96, 2)

    def forward(self, ids):
        x = self.embed(ids)
        h = c = x.new_zeros(x.shape[0], 96)
        outs = []  #- cell
        for t in range(x.shape[1]):  #- cell
            h, c = self.cell(x[:, t], (h, c))  #- cell
            outs.append(h)  #- cell
        hidden = torch.stack(outs, 1)  #- cell
        #+ cell: hidden, _ = self.lstm(x)
        return self.out(hidden.mean(1))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(300):
    batch = torch.randint(0, 600, (32,)).tolist()
    rows = [tokenize(texts[i]) for i in batch for _ in range(4)][::4]  #- tokens
    #+ tokens: rows = [known[i] for i in batch]
    length = 96  #- padding
    #+ padding: length = max(len(row) for row in rows)
    ids = torch.zeros(32, length, dtype=torch.long)  #: padding
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    loss = F.cross_entropy(model(ids), labels[batch])  #: padding
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
