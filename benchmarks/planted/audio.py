"""Keyword spotting from waveforms with hand-written features."""
# mistake filters: rebuilt-tensors, python-in-step
# mistake features: looped-samples, looped-calls
# mistake confusion: python-in-step, host-metrics, looped-calls, looped-samples

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
B, SAMPLES, BANDS = 32, 4000, 40


def filters():
    bank = torch.zeros(BANDS, 129)
    edges = [700 * (10 ** (2840 * i / (BANDS + 1) / 2595) - 1) / 8000 * 128 for i in range(BANDS + 2)]
    for b in range(BANDS):
        for f in range(129):
            left, middle, right = edges[b : b + 3]  #: filters
            bank[b, f] = max(0.0, min((f - left) / (middle - left), (right - f) / (right - middle)))  #: filters
    return bank


BANK, WINDOW = filters(), torch.hann_window(256)


def features(waves):
    spectra = [torch.stft(w, 256, 128, window=WINDOW, return_complex=True).abs() for w in waves]  #- features
    spectrum = torch.stack(spectra)  #- features
    #+ features: spectrum = torch.stft(waves, 256, 128, window=WINDOW, return_complex=True).abs()
    bank = filters()  #- filters
    #+ filters: bank = BANK
    return (bank @ spectrum).clamp_min(1e-5).log()


net = nn.Sequential(nn.Conv1d(BANDS, 64, 3), nn.ReLU(), nn.Conv1d(64, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
waves_all, y_all = torch.randn(200, SAMPLES), torch.randint(0, 10, (200,))
confusion = torch.zeros(10, 10, dtype=torch.long)
for step in range(300):
    at = torch.randint(0, 200, (B,))
    logits = net(features(waves_all[at]))
    loss = F.cross_entropy(logits, y_all[at])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for guess, truth in zip(logits.argmax(1), y_all[at]):  #- confusion
        confusion[truth, guess] += 1  #- confusion
    #+ confusion: confusion += torch.bincount(y_all[at] * 10 + logits.argmax(1), minlength=100).view(10, 10)
    # end of step
