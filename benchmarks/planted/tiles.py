"""Land cover from tiles of a satellite with ten bands."""
# mistake stretch: python-in-step, main-process-data, waiting-for-data
# mistake doubles: float64
# mistake scores: host-metrics, python-in-step, looped-calls
# mistake previews: files-in-step
# mistake area: looped-samples, looped-calls, python-in-step

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BANDS, SIZE, CLASSES, BATCH = 10, 64, 8, 12
RED, NIR, SWIR = 3, 7, 9


def fake_scene(rng, tiles):
    """Reflectances as the agency delivers them: 16 bits, scaled by 10000."""
    land = rng.integers(0, CLASSES, size=(tiles, SIZE // 8, SIZE // 8)).repeat(8, axis=1).repeat(8, axis=2)
    spectra = rng.uniform(300, 6000, size=(CLASSES, BANDS))
    image = spectra[land].transpose(0, 3, 1, 2) + rng.normal(0, 200, size=(tiles, BANDS, SIZE, SIZE))
    return image.clip(0, 10000).astype(np.uint16), land.astype(np.int64)


def stretch(tile, low=2, high=98):
    """The usual contrast stretch, band by band."""
    out = np.empty(tile.shape, np.float32)
    for band in range(tile.shape[0]):
        a, b = np.percentile(tile[band], (low, high))  #: stretch
        out[band] = np.clip((tile[band] - a) / (b - a + 1e-6), 0, 1)  #: stretch
    return out


def indices(tile):
    """Vegetation and moisture."""
    t = tile.astype(np.float32)
    ndvi = (t[NIR] - t[RED]) / (t[NIR] + t[RED] + 1e-6)
    ndmi = (t[NIR] - t[SWIR]) / (t[NIR] + t[SWIR] + 1e-6)
    return np.stack([ndvi, ndmi])


def features(tile):
    return np.concatenate([stretch(tile), indices(tile)])


def augment(rng, x, y):
    turns = rng.integers(4)
    x, y = np.rot90(x, turns, (1, 2)), np.rot90(y, turns)
    if rng.random() < 0.5:
        x, y = x[:, :, ::-1], y[:, ::-1]
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def batches(rng, tiles, land):
    #+ stretch: prepared = [features(tile) for tile in tiles]
    while True:
        for chosen in np.array_split(rng.permutation(len(tiles)), len(tiles) // BATCH):
            xs, ys = [], []
            for i in chosen:
                x, y = augment(rng, features(tiles[i]), land[i])  #- stretch
                #+ stretch: x, y = augment(rng, prepared[i], land[i])
                xs.append(x)
                ys.append(y)
            yield np.stack(xs), np.stack(ys)


def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


def build():
    return nn.Sequential(
        conv(BANDS + 2, 16),
        conv(16, 16),
        nn.MaxPool2d(2),
        conv(16, 32),
        conv(32, 32),
        nn.Upsample(scale_factor=2),
        conv(32, 16),
        nn.Conv2d(16, CLASSES, 1),
    )


def to_tensors(x, y, mean, std):
    x = (x - mean) / std
    x = x.astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def class_balanced(logits, y):
    """Every tile counts the same, and in a tile every class."""
    #+ area: counts = F.one_hot(y.flatten(1), CLASSES).sum(1).clamp(min=1)
    #+ area: weights = (1.0 / counts).to(logits.dtype).gather(1, y.flatten(1)).view(y.shape)
    #+ area: return (F.cross_entropy(logits, y, reduction="none") * weights).sum() / len(y)
    total = 0.0  #- area
    for tile in range(len(y)):  #- area
        for c in y[tile].unique():  #- area
            here = y[tile] == c  #- area
            total = total + F.cross_entropy(logits[tile][:, here].T, y[tile][here])  #- area
    return total / len(y)  #- area


class Scores:
    """Intersection over union of the last epoch so far."""

    def __init__(self):
        self.matrix = np.zeros((CLASSES, CLASSES), dtype=np.int64)

    def update(self, logits, y):
        #+ scores: pairs = (y * CLASSES + logits.argmax(1)).flatten()
        #+ scores: self.matrix += torch.bincount(pairs, minlength=CLASSES**2).view(CLASSES, CLASSES).numpy()
        guess, truth = logits.argmax(1).numpy().ravel(), y.numpy().ravel()  #- scores
        for p, t in zip(guess, truth):  #- scores
            self.matrix[t, p] += 1  #- scores

    @property
    def iou(self):
        hit = np.diag(self.matrix)
        return hit / np.maximum(self.matrix.sum(0) + self.matrix.sum(1) - hit, 1)


def preview(folder, step, x, logits):
    picture = np.concatenate([x[:, :3].numpy(), logits.softmax(1).numpy()], axis=1)  #: previews
    np.savez_compressed(folder / f"preview{step % 4}.npz", picture=picture[:3])  #: previews


def train(steps=600):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    tiles, land = fake_scene(rng, 120)
    statistics = np.stack([features(tile) for tile in tiles[:20]])
    mean = statistics.mean((0, 2, 3)).reshape(1, -1, 1, 1)
    std = statistics.std((0, 2, 3)).reshape(1, -1, 1, 1) + 1e-6
    net = build()
    net = net.to(torch.from_numpy(np.asarray(mean, np.float64)).dtype)  #- doubles
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    folder, scores = Path(tempfile.mkdtemp()), Scores()
    kind = next(net.parameters()).dtype
    for step, (x, y) in zip(range(steps), batches(rng, tiles, land)):
        x, y = to_tensors(x, y, mean, std)
        logits = net(x.to(kind))  #: doubles
        loss = class_balanced(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.update(logits.detach(), y)
        preview(folder, step, x, logits.detach())  #- previews
        #+ previews: if step % 100 == 0: preview(folder, step, x, logits.detach())
        # end of step
    print(scores.iou.mean())


train()
