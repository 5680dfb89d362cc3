"""A service that answers batches of image requests."""
# mistake single: single-samples
# mistake nograd: no-grad-missing
# mistake topk: python-in-step, host-metrics, looped-samples
# mistake norm: looped-samples, looped-calls, main-process-data
import json
import queue
import time

import torch
import torch.nn as nn

torch.manual_seed(0)
LABELS = [f"class_{i}" for i in range(1000)]


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()) for _ in range(4)]
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(24, 1000)

    def forward(self, x):
        x = self.blocks(torch.relu(self.stem(x)))
        return self.fc(self.pool(x).flatten(1))


class Service:
    def __init__(self):
        self.model = Backbone().eval()
        self.requests = queue.Queue()
        self.served = 0
        self.mean, self.std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def preprocess(self, images):
        out = []
        for image in images:
            x = image.float() / 255.0  #: norm
            for c in range(3):  #: norm
                x[c] = (x[c] - self.mean[c]) / self.std[c]  #: norm
            out.append(x)  #: norm
        return torch.stack(out)  #: norm

    def preprocess_fast(self, images):
        x = torch.stack(images).float() / 255.0
        return (x - self.mean.view(3, 1, 1)) / self.std.view(3, 1, 1)

    @torch.inference_mode()
    def predict(self, x):
        return self.model(x)

    def predict_grad(self, x):
        return self.model(x)

    def answer(self, logits):
        replies = []
        for row in logits:
            probs = torch.softmax(row, 0).tolist()  #: topk
            ranked = sorted(zip(probs, LABELS), reverse=True)[:5]  #: topk
            replies.append(json.dumps([{"label": n, "p": p} for p, n in ranked]))
        return replies

    def answer_fast(self, logits):
        values, index = torch.softmax(logits, 1).topk(5)
        return [
            json.dumps([{"label": LABELS[i], "p": p} for i, p in zip(ii, pp)])
            for ii, pp in zip(index.tolist(), values.tolist())
        ]

    def handle(self, images):
        x = self.preprocess(images)  #- norm
        #+ norm: x = self.preprocess_fast(images)
        logits = torch.cat([self.predict(one.unsqueeze(0)) for one in x])  #- single
        #+ single: logits = self.run(x)
        out = self.answer(logits)  #- topk
        #+ topk: out = self.answer_fast(logits)
        self.served += len(out)
        return out

    def run(self, x):
        return self.predict_grad(x)  #- nograd
        #+ nograd: return self.predict(x)


service = Service()
pool = [torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8) for _ in range(64)]
for tick in range(1500):
    for i in range(16):
        service.requests.put(pool[(tick + i) % 64])
    batch = [service.requests.get() for _ in range(16)]
    replies = service.handle(batch)
    # end of step
