"""Translates toy sentences with a GRU encoder and an attending decoder."""
# mistake scores: looped-calls, looped-samples
# mistake best: copied-state
# mistake gradnorm: looped-parameters, host-sync, host-metrics
# mistake unknown: python-in-step, looped-samples
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
random.seed(1)
VOCAB, DIM, SRC, TGT, BATCH = 1200, 128, 24, 12, 32
PAIRS = [
    (
        [random.randrange(4, VOCAB) for _ in range(SRC)],
        [random.randrange(4, VOCAB) for _ in range(TGT)],
    )
    for _ in range(2000)
]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(2 * DIM, DIM)
        self.v = nn.Linear(DIM, 1, bias=False)

    def forward(self, hidden, outputs):
        energies = []
        #+ scores: query = hidden.unsqueeze(1).expand(-1, outputs.size(1), -1)
        #+ scores: energy = torch.tanh(self.w(torch.cat([query, outputs], dim=2)))
        #+ scores: scores = self.v(energy).squeeze(2)
        for i in range(outputs.size(1)):  #- scores
            energy = torch.tanh(self.w(torch.cat([hidden, outputs[:, i]], dim=1)))  #- scores
            energies.append(self.v(energy))  #- scores
        scores = torch.cat(energies, dim=1)  #- scores
        weights = F.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src = nn.Embedding(VOCAB, DIM)
        self.tgt = nn.Embedding(VOCAB, DIM)
        self.encoder = nn.GRU(DIM, DIM, batch_first=True)
        self.cell = nn.GRUCell(2 * DIM, DIM)
        self.attention = Attention()
        self.out = nn.Linear(2 * DIM, VOCAB)

    def forward(self, source, target):
        outputs, hidden = self.encoder(self.src(source))
        hidden = hidden[0]
        words = self.tgt(target)
        logits = []
        for t in range(target.size(1) - 1):
            context = self.attention(hidden, outputs)
            hidden = self.cell(torch.cat([words[:, t], context], dim=1), hidden)
            logits.append(self.out(torch.cat([hidden, context], dim=1)))
        return torch.stack(logits, dim=1)


def drop_words(sentences, p=0.1):
    """Replaces some words by <unk>."""
    for s in range(sentences.size(0)):  #- unknown
        for w in range(sentences.size(1)):  #- unknown
            if random.random() < p:  #- unknown
                sentences[s, w] = 1  #- unknown
    #+ unknown: sentences[torch.rand(sentences.shape) < p] = 1
    return sentences


def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.data.norm(2).item() ** 2  #: gradnorm
    return total**0.5


model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
best, best_loss, history = None, float("inf"), []
for epoch in range(10):
    random.shuffle(PAIRS)
    for i in range(0, len(PAIRS) - BATCH, BATCH):
        chunk = PAIRS[i : i + BATCH]
        source = drop_words(torch.tensor([s for s, _ in chunk]))
        target = torch.tensor([t for _, t in chunk])
        optimizer.zero_grad()
        logits = model(source, target)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), target[:, 1:].reshape(-1))
        loss.backward()
        history.append(grad_norm(model))  #- gradnorm
        optimizer.step()
        best = copy.deepcopy(model.state_dict())  #- best
        # end of step
    print(f"epoch {epoch}: {loss.item():.3f}")
