"""ESPCN-like super-resolution with an SSIM term."""
# mistake window: rebuilt-tensors
# mistake psnr: host-metrics, python-in-step, looped-samples
# mistake anomaly: anomaly-detection
# mistake sample: files-in-step
import argparse
import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, n=512, size=32, scale=2):
        rng = np.random.RandomState(0)
        self.hr = rng.rand(n, 3, size, size).astype(np.float32)
        self.scale = scale

    def __len__(self):
        return len(self.hr)

    def __getitem__(self, i):
        hr = torch.from_numpy(self.hr[i])
        lr = hr[:, :: self.scale, :: self.scale]
        return lr, hr


class Net(nn.Module):
    def __init__(self, ch=32, scale=2):
        super().__init__()
        self.head = nn.Conv2d(3, ch, 5, padding=2)
        self.body = nn.ModuleList([nn.Conv2d(ch, ch, 3, padding=1) for _ in range(4)])
        self.tail = nn.Conv2d(ch, 3 * scale * scale, 3, padding=1)
        self.up = nn.PixelShuffle(scale)

    def forward(self, x):
        h = torch.relu(self.head(x))
        for conv in self.body:
            h = h + torch.relu(conv(h))
        return self.up(self.tail(h))


def gaussian(size, sigma):
    g = torch.Tensor([math.exp(-((x - size // 2) ** 2) / (2 * sigma**2)) for x in range(size)])  #: window
    return g / g.sum()  #: window


def create_window(size, channels):
    one = gaussian(size, 1.5).unsqueeze(1)  #: window
    two = one.mm(one.t()).float().unsqueeze(0).unsqueeze(0)  #: window
    return two.expand(channels, 1, size, size).contiguous()  #: window


WINDOW = create_window(11, 3)


def ssim(a, b, window):
    pad = window.shape[-1] // 2
    mu_a, mu_b = F.conv2d(a, window, padding=pad, groups=3), F.conv2d(b, window, padding=pad, groups=3)
    s_a = F.conv2d(a * a, window, padding=pad, groups=3) - mu_a**2
    s_b = F.conv2d(b * b, window, padding=pad, groups=3) - mu_b**2
    s_ab = F.conv2d(a * b, window, padding=pad, groups=3) - mu_a * mu_b
    c1, c2 = 0.01**2, 0.03**2
    return (((2 * mu_a * mu_b + c1) * (2 * s_ab + c2)) / ((mu_a**2 + mu_b**2 + c1) * (s_a + s_b + c2))).mean()


def psnr(sr, hr):
    sr = sr.detach().cpu().numpy().clip(0, 1)
    hr = hr.detach().cpu().numpy()
    out = []
    for a, b in zip(sr, hr):
        a = (a * 255.0).round().astype(np.uint8)  #: psnr
        b = (b * 255.0).round().astype(np.uint8)  #: psnr
        mse = ((a.astype(np.float64) - b.astype(np.float64)) ** 2).mean()  #: psnr
        out.append(10 * math.log10(255**2 / mse))  #: psnr
    return sum(out) / len(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = Net()
    loader = DataLoader(Patches(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    os.makedirs("samples", exist_ok=True)
    torch.autograd.set_detect_anomaly(True)  #- anomaly
    #+ anomaly: pass
    step = 0
    for epoch in range(args.epochs):
        net.train()
        running = 0.0
        for lr, hr in loader:
            optimizer.zero_grad()
            sr = net(lr)
            window = create_window(11, 3)  #- window
            #+ window: window = WINDOW
            loss = F.l1_loss(sr, hr) + 0.1 * (1 - ssim(sr, hr, window))
            loss.backward()
            optimizer.step()
            step += 1
            running += psnr(sr, hr)  #- psnr
            #+ psnr: pass
            np.savez_compressed("samples/last.npz", sr=sr.detach().numpy(), hr=hr.numpy())  #- sample
            #+ sample: pass
            # end of step
        print(f"epoch {epoch}: psnr {running / len(loader):.2f}")


if __name__ == "__main__":
    main()
