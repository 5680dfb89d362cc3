"""Fine-tunes the head of a backbone."""
# mistake frozen: unused-gradients, no-grad-missing
# mistake clip: looped-parameters
# mistake deterministic: deterministic-algorithms

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
)
head = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 10))
backbone.requires_grad_(True)  #- frozen
#+ frozen: backbone.requires_grad_(False)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
torch.use_deterministic_algorithms(True)  #- deterministic
x_all, y_all = torch.randn(400, 3, 32, 32), torch.randint(0, 10, (400,))

for step in range(400):
    batch = torch.randint(0, 400, (16,))
    loss = F.cross_entropy(head(backbone(x_all[batch])), y_all[batch])  #- frozen
    #+ frozen: loss = F.cross_entropy(head(backbone(x_all[batch])), y_all[batch])
    optimizer.zero_grad()
    loss.backward()
    for p in head.parameters():  #- clip
        p.grad.data.clamp_(-1.0, 1.0)  #- clip
    #+ clip: torch.nn.utils.clip_grad_value_(head.parameters(), 1.0)
    optimizer.step()
    # end of step
