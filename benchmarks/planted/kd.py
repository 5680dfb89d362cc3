"""Distils a transformer encoder into a smaller one."""
# mistake graph: no-grad-missing, unused-gradients
# mistake hidden: repeated-forward
# mistake reload: files-in-step, files-read, rebuilt-tensors
# mistake agree: host-metrics, python-in-step
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, CLASSES, LENGTH, BATCH = 2000, 20, 32, 16


class Classifier(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(dim, CLASSES)

    def features(self, ids):
        return self.encoder(self.embed(ids)).mean(1)

    def forward(self, ids):
        return self.head(self.features(ids))


teacher, student = Classifier(128, 4), Classifier(64, 2)
adapt = nn.Linear(64, 128)
path = os.path.join(tempfile.mkdtemp(), "teacher.pt")
torch.save(teacher.state_dict(), path)
optimizer = torch.optim.AdamW([*student.parameters(), *adapt.parameters()], lr=1e-3)
ids = torch.randint(0, VOCAB, (2000, LENGTH))
labels = torch.randint(0, CLASSES, (2000,))


def agreement(a, b):
    a, b = a.argmax(1).cpu().numpy(), b.argmax(1).cpu().numpy()  #: agree
    matrix = [[0] * CLASSES for _ in range(CLASSES)]  #: agree
    for _ in range(50):  #: agree
        for i, j in zip(a, b):  #: agree
            matrix[i][j] += 1  #: agree
    return matrix


teacher.eval()
for epoch in range(40):
    for rows in torch.randperm(len(ids)).split(BATCH):
        x, y = ids[rows], labels[rows]
        teacher.load_state_dict(torch.load(path))  #- reload
        #+ graph: with torch.no_grad():
        #+ graph:     deep = teacher.features(x)
        deep = teacher.features(x)  #- graph
        #+ hidden: soft = teacher.head(deep)
        with torch.no_grad():  #- hidden
            soft = teacher(x)  #- hidden
        shallow = student.features(x)
        logits = student.head(shallow)
        loss = F.cross_entropy(logits, y)
        loss = loss + F.kl_div(
            F.log_softmax(logits / 2, 1), F.softmax(soft.detach() / 2, 1), reduction="batchmean"
        )
        loss = loss + F.mse_loss(adapt(shallow), deep)
        optimizer.zero_grad()
        loss.backward()  #: graph
        optimizer.step()
        same = agreement(logits, soft)  #- agree
        #+ agree: same = (logits.argmax(1) == soft.argmax(1)).float().mean()
        # end of step
