"""Answers requests with a small text encoder."""
# mistake grad: no-grad-missing
# mistake padding: padding

import random

import torch
import torch.nn as nn

torch.manual_seed(0)
random.seed(0)
layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True, dropout=0.0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, 96, padding_idx=0)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(96, 5)

    def forward(self, ids):
        return self.out(self.body(self.embed(ids)).mean(1))


model = Encoder()
model.eval()
requests = [[random.randint(1, 4999) for _ in range(random.randint(10, 40))] for _ in range(400)]


def answer(batch):
    length = 128  #- padding
    #+ padding: length = max(len(ids) for ids in batch)
    ids = torch.tensor([row + [0] * (length - len(row)) for row in batch])  #: padding
    scores = model(ids)  #- grad
    #+ grad: scores = torch.inference_mode()(model)(ids)
    return scores.argmax(1).tolist()


answers = []
for step in range(300):
    answers += answer(random.sample(requests, 8))
    # end of step
