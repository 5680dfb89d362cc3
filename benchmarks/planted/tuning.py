"""Fine-tunes a pretrained text encoder on sentence pairs, with evaluation and checkpoints."""
# mistake frozen: unused-gradients, no-grad-missing
# mistake evaluate: evaluation-dominates
# mistake keep: checkpoint-dominates, files-in-step
# mistake lengths: padding
# mistake scheduler: looped-parameters, python-in-step
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(0)
torch.manual_seed(0)
VOCAB, DIM, LIMIT = 3000, 128, 96


def sentence():
    return [random.randrange(2, VOCAB) for _ in range(random.randint(8, 32))]


PAIRS = [(sentence(), sentence(), random.randint(0, 1)) for _ in range(1600)]
TRAIN, VALID = PAIRS[:1200], PAIRS[1200:]


def collate(batch):
    rows = [[1, *a, 1, *b, 1] for a, b, _ in batch]
    width = LIMIT  #- lengths
    #+ lengths: width = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, torch.tensor([y for _, _, y in batch])


class PairModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(DIM, 4, 256, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh(), nn.Linear(DIM, 2))

    def forward(self, ids):
        keep = (ids != 0).unsqueeze(-1)
        h = self.encoder(self.embed(ids), src_key_padding_mask=ids == 0)  #: frozen
        return self.head((h * keep).sum(1) / keep.sum(1))


model = PairModel()
#+ frozen: for p in [*model.embed.parameters(), *model.encoder.parameters()]:
#+ frozen:     p.requires_grad_(False)
optimizer = torch.optim.AdamW(model.head.parameters(), lr=2e-4)
criterion = nn.CrossEntropyLoss()
folder = tempfile.mkdtemp()
train = DataLoader(TRAIN, 16, shuffle=True, collate_fn=collate)
valid = DataLoader(VALID, 16, collate_fn=collate)


def evaluate():
    model.eval()
    right = 0
    with torch.no_grad():
        for ids, y in valid:
            right += (model(ids).argmax(1) == y).sum().item()  #: evaluate
    model.train()
    return right / len(VALID)


step = 0
for epoch in range(20):
    for ids, y in train:
        loss = criterion(model(ids), y)
        optimizer.zero_grad()
        loss.backward()  #: frozen
        optimizer.step()
        for name, p in model.named_parameters():  #- scheduler
            if torch.isnan(p).any() or torch.isinf(p).any():  #- scheduler
                raise ValueError(name)  #- scheduler
        step += 1
        if step % 10 == 0:  #- evaluate
            accuracy = evaluate()  #- evaluate
        if step % 2 == 0:  #- keep
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, f"{step % 4}.pt"))  #- keep
        # end of step
    #+ evaluate: accuracy = evaluate()
    #+ keep: torch.save(model.state_dict(), os.path.join(folder, f"{epoch % 2}.pt"))
