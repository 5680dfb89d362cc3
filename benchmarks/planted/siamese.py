"""Triplet training with a shared encoder."""
# mistake anchor: repeated-forward
# mistake timeloop: looped-calls
# mistake anomaly: anomaly-detection

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.mid, self.out = nn.Linear(24, 128), nn.Linear(128, 128), nn.Linear(128, 32)

    def forward(self, x):
        frames = []  #- timeloop
        for t in range(x.shape[1]):  #- timeloop
            frames.append(F.relu(self.mid(F.relu(self.into(x[:, t])))))  #- timeloop
        h = torch.stack(frames, 1).mean(1)  #- timeloop
        #+ timeloop: h = F.relu(self.mid(F.relu(self.into(x)))).mean(1)
        return F.normalize(self.out(h), dim=1)


encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
clips = torch.randn(300, 40, 24)


def distances(anchor, other):
    return (encoder(anchor) - encoder(other)).pow(2).sum(1)  #: anchor


for step in range(500):
    a, p, n = (clips[torch.randint(0, 300, (32,))] for _ in range(3))
    near, far = distances(a, p), distances(a, n)  #- anchor
    #+ anchor: e = encoder(a); near, far = (e - encoder(p)).pow(2).sum(1), (e - encoder(n)).pow(2).sum(1)
    loss = F.relu(near - far + 0.2).mean()
    optimizer.zero_grad()
    with torch.autograd.detect_anomaly(check_nan=False):  #- anomaly
        loss.backward()  #- anomaly
    #+ anomaly: loss.backward()
    optimizer.step()
    # end of step
