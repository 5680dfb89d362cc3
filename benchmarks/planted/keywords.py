# keyword spotting: small cnn on log mel spectrograms, computed on the fly
# mistake mel: rebuilt-tensors, python-in-step, main-process-data, waiting-for-data
# mistake stft: looped-samples, main-process-data, waiting-for-data, looped-calls
# mistake specaug: looped-samples, looped-calls, python-in-step
# mistake val: no-grad-missing, recorded-evaluation, evaluation-dominates
# mistake cm: looped-samples, looped-calls, python-in-step, host-metrics
import math, random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

SR = 8000
N_FFT = 256
HOP = 80
N_MELS = 40
CLASSES = 20
torch.manual_seed(1)
np.random.seed(1)
random.seed(1)


def melbank():
    def mel(f):
        return 2595 * math.log10(1 + f / 700)
    def hz(m):
        return 700 * (10 ** (m / 2595) - 1)
    pts = [hz(mel(20) + i * (mel(SR / 2) - mel(20)) / (N_MELS + 1)) for i in range(N_MELS + 2)]
    fb = np.zeros((N_FFT // 2 + 1, N_MELS), dtype=np.float32)
    for m in range(N_MELS):
        lo, mid, hi = pts[m], pts[m + 1], pts[m + 2]
        for k in range(N_FFT // 2 + 1):
            f = k * SR / N_FFT
            if lo < f < mid:
                fb[k, m] = (f - lo) / (mid - lo)  #: mel
            elif mid <= f < hi:
                fb[k, m] = (hi - f) / (hi - mid)  #: mel
    return torch.from_numpy(fb)


bank = melbank()
window = torch.hann_window(N_FFT)


def logmel(wav):
    s = torch.stft(wav, N_FFT, HOP, window=window, return_complex=True).abs() ** 2  #: stft
    fb = melbank()  #- mel
    #+ mel: fb = bank
    return torch.log(torch.matmul(s.transpose(-1, -2), fb) + 1e-6)


class Clips(Dataset):
    def __init__(self, n):
        self.wav = (np.random.randn(n, SR) * 0.1).astype(np.float32)
        self.y = np.random.randint(0, CLASSES, n)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        wav = torch.from_numpy(self.wav[i])
        shift = random.randint(-400, 400)
        wav = torch.roll(wav, shift)
        wav = logmel(wav)  #- stft
        return wav, self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, 3, padding=1)
        self.b1 = nn.BatchNorm2d(24)
        self.c2 = nn.Conv2d(24, 32, 3, padding=1)
        self.b2 = nn.BatchNorm2d(32)
        self.c3 = nn.Conv2d(32, 48, 3, padding=1)
        self.fc = nn.Linear(48, CLASSES)

    def forward(self, x):
        x = x.unsqueeze(1)
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


def spec_augment(x):
    b, t, f = x.shape
    #+ specaug: w, v = torch.randint(4, 20, (b, 1)), torch.randint(2, 8, (b, 1))
    #+ specaug: t0, f0 = (torch.rand(b, 1) * (t - w)).long(), (torch.rand(b, 1) * (f - v)).long()
    #+ specaug: ts, fs = torch.arange(t), torch.arange(f)
    #+ specaug: x = x.masked_fill(((ts >= t0) & (ts < t0 + w)).unsqueeze(2), 0.0)
    #+ specaug: return x.masked_fill(((fs >= f0) & (fs < f0 + v)).unsqueeze(1), 0.0)
    x = x.clone()  #- specaug
    for i in range(b):  #- specaug
        for _ in range(2):  #- specaug
            w = random.randint(4, 20)  #- specaug
            t0 = random.randint(0, t - w)  #- specaug
            x[i, t0:t0 + w, :] = 0  #- specaug
            w = random.randint(2, 8)  #- specaug
            f0 = random.randint(0, f - w)  #- specaug
            x[i, :, f0:f0 + w] = 0  #- specaug
    return x  #- specaug


train = DataLoader(Clips(1200), batch_size=32, shuffle=True)
valid = DataLoader(Clips(64), batch_size=32)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
cm = torch.zeros(CLASSES, CLASSES)
n = 0
for epoch in range(10):
    for x, y in train:  #: stft
        #+ stft: x = logmel(x)
        x = spec_augment(x)
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        pred = out.argmax(1)
        #+ cm: cm += torch.bincount(y * CLASSES + pred, minlength=CLASSES**2).view(CLASSES, CLASSES)
        for t, p in zip(y, pred):  #- cm
            cm[t, p] += 1  #- cm
        n += 1
        if n % 8 == 0:
            net.eval()
            ok = 0
            for vx, vy in valid:
                #+ stft: vx = logmel(vx)
                #+ val: with torch.no_grad():
                #+ val:     ok += (net(vx).argmax(1) == vy).sum().item()
                ok += (net(vx).argmax(1) == vy).sum().item()  #- val
            net.train()
        # end of step
