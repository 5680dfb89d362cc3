"""Skip-gram with negative sampling."""
# mistake negatives: python-in-step, main-process-data, waiting-for-data

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
np.random.seed(0)
VOCAB, WIDTH, B, K = 20000, 64, 128, 5
counts = np.random.zipf(1.3, VOCAB).astype(np.float64) ** 0.75
share = counts / counts.sum()
table = torch.from_numpy(np.random.choice(VOCAB, 1 << 20, p=share))
words, context = nn.Embedding(VOCAB, WIDTH, sparse=True), nn.Embedding(VOCAB, WIDTH, sparse=True)
optimizer = torch.optim.SparseAdam([*words.parameters(), *context.parameters()], lr=1e-3)
corpus = torch.randint(0, VOCAB, (100_000,))
for step in range(600):
    at = torch.randint(2, 99_998, (B,))
    center, near = corpus[at], corpus[at + 1]
    negatives = np.stack([np.random.choice(VOCAB, K, p=share) for _ in range(B)])  #- negatives
    negatives = torch.from_numpy(negatives)  #- negatives
    #+ negatives: negatives = table[torch.randint(0, 1 << 20, (B, K))]
    h = words(center)
    right = (h * context(near)).sum(-1)
    wrong = torch.bmm(context(negatives), h[:, :, None]).squeeze(-1)
    loss = -F.logsigmoid(right).mean() - F.logsigmoid(-wrong).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
