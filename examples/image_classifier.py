"""Train a small residual network to tell synthetic textures apart, fed by a DataLoader."""

from __future__ import annotations

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Textures(Dataset[tuple[Tensor, int]]):
    """Tinted waves under noise; a class is a direction. Each index always gives one image."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        axis = torch.linspace(-1.0, 1.0, size)
        self.y, self.x = torch.meshgrid(axis, axis, indexing="ij")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        random = torch.Generator().manual_seed(index)
        label = index % CLASSES
        angle = math.pi * label / CLASSES
        frequency, phase = (torch.rand(2, generator=random) * 4 + 6).tolist()
        wave = torch.sin(frequency * (math.cos(angle) * self.x + math.sin(angle) * self.y) + phase)
        tint = torch.rand(3, 1, 1, generator=random) + 0.5
        image = tint * wave + 0.5 * torch.randn(3, *wave.shape, generator=random)
        return self.augment(image, random), label

    @staticmethod
    def augment(image: Tensor, random: torch.Generator) -> Tensor:
        """Shift by up to four pixels, change brightness and contrast, blur a little, normalise."""
        size = image.shape[-1]
        padded = F.pad(image[None], (4, 4, 4, 4), mode="reflect")[0]
        top, left = torch.randint(0, 9, (2,), generator=random).tolist()
        image = padded[:, top : top + size, left : left + size]
        gain, offset = torch.rand(2, generator=random).tolist()
        image = image * (0.7 + 0.6 * gain) + 0.4 * (offset - 0.5)
        image = 0.5 * image + 0.5 * F.avg_pool2d(image[None], 3, stride=1, padding=1)[0]
        return (image - image.mean()) / image.std()


class Residual(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.skip = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x))


class SmallResNet(nn.Module):
    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        layers: list[nn.Module] = []
        channels_in = width
        for stage in range(3):
            channels = width * 2**stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Residual(channels_in, channels, stride))
                channels_in = channels
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels_in, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.body(self.stem(images))
        return self.head(x.mean(dim=(2, 3)))


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = device.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=16384 if large else 2048)
    parser.add_argument("--size", type=int, default=64 if large else 32)
    parser.add_argument("--width", type=int, default=64 if large else 16)
    parser.add_argument("--blocks", type=int, default=3 if large else 2, help="in each stage")
    parser.add_argument("--batch", type=int, default=128 if large else 32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    loader = DataLoader(
        Textures(args.images, args.size),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
    )
    model = SmallResNet(args.width, args.blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)

    for epoch in range(args.epochs):
        began = time.perf_counter()
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 16 == 0:
                right = (logits.argmax(dim=1) == labels).float().mean().item()
                print(
                    f"epoch {epoch} step {step:3d}  loss {loss.item():.3f}  right {right:.0%}",
                    flush=True,
                )
        rate = len(loader) * args.batch / (time.perf_counter() - began)
        print(f"epoch {epoch}: {rate:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
