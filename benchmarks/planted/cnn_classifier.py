"""An image classifier with a running training accuracy."""
# mistake anomaly: anomaly-detection
# mistake twice: repeated-forward
# mistake doubles: float64

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(0)
images = rng.standard_normal((512, 3, 32, 32))
labels = rng.integers(0, 10, 512)
x_all = torch.from_numpy(images)  #- doubles
#+ doubles: x_all = torch.from_numpy(images).float()
y_all = torch.from_numpy(labels)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(512, 10),
)
model = model.double()  #- doubles
#+ doubles: model = model.float()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.autograd.set_detect_anomaly(True)  #- anomaly

correct = 0
for step in range(400):
    batch = torch.randint(0, 512, (32,))
    x, y = x_all[batch], y_all[batch]
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pred = model(x).argmax(1)  #- twice
    #+ twice: pred = logits.argmax(1)
    correct += (pred == y).sum()
    # end of step
print("accuracy", float(correct) / (400 * 32))
