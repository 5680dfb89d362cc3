"""A tagger with a conditional random field; the score of the right tags is summed in loops."""
# mistake score: looped-calls, looped-samples, host-metrics, python-in-step

import torch
import torch.nn as nn

torch.manual_seed(0)
TAGS, LENGTH, B = 9, 20, 16


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.out = nn.Linear(128, TAGS)
        self.moves = nn.Parameter(torch.zeros(TAGS, TAGS))

    def right(self, scores, tags):
        total = 0.0  #- score
        for b in range(B):  #- score
            total = total + scores[b, 0, tags[b, 0]]  #- score
            for t in range(1, LENGTH):  #- score
                total = total + scores[b, t, tags[b, t]] + self.moves[tags[b, t - 1], tags[b, t]]  #- score
        return total  #- score
        #+ score: return scores.gather(2, tags[..., None]).sum() + self.moves[tags[:, :-1], tags[:, 1:]].sum()

    def forward(self, ids, tags):
        scores = self.out(self.lstm(self.embed(ids))[0])
        every = scores[:, 0]
        for t in range(1, LENGTH):
            every = torch.logsumexp(every[:, :, None] + self.moves, 1) + scores[:, t]
        return (every.logsumexp(1).sum() - self.right(scores, tags)) / B


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(300):
    ids, tags = torch.randint(0, 1000, (B, LENGTH)), torch.randint(0, TAGS, (B, LENGTH))
    loss = model(ids, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
