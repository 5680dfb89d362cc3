"""Forecasts of time series with an LSTM."""
# memory memory: growing-memory
# mistake sample: looped-samples, looped-calls
# mistake json: files-in-step, python-in-step

import json
import os
import tempfile

import torch
import torch.nn as nn

torch.manual_seed(0)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 48, batch_first=True), nn.Linear(48, 8)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
series = torch.randn(5000, 8)
starts = torch.arange(0, 4900)
windows = series.unfold(0, 33, 1).transpose(1, 2)
path = os.path.join(tempfile.mkdtemp(), "history.json")
records, total = [{"step": i, "loss": 1.0} for i in range(400)], 0.0

for step in range(400):
    at = torch.randint(0, 4900, (32,))
    batch = torch.stack([series[i : i + 33] for i in at])  #- sample
    #+ sample: batch = windows[at]
    pred = model(batch[:, :32])
    loss = (pred - batch[:, 32]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = total + loss  #- memory
    #+ memory: total = total + loss.detach()
    records.append({"step": step, "loss": float(loss)})
    with open(path, "w") as file:  #- json
        json.dump([{"step": r["step"], "loss": r["loss"]} for r in records[-400:] * 4], file)  #- json
    #+ json: pass
    # end of step
