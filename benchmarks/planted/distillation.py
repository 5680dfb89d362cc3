"""Knowledge distillation from a wide teacher."""
# mistake teacher: no-grad-missing, unused-gradients
# mistake again: repeated-forward
# mistake save: files-in-step

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def mlp(width):
    return nn.Sequential(
        nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 50)
    )


teacher, student = mlp(640).eval(), mlp(192)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
x_all, y_all = torch.randn(2000, 256), torch.randint(0, 50, (2000,))
folder = tempfile.mkdtemp()
agreed = torch.zeros(())

for step in range(500):
    batch = torch.randint(0, 2000, (128,))
    x, y = x_all[batch], y_all[batch]
    soft = F.softmax(teacher(x) / 4.0, dim=-1)  #- teacher
    #+ teacher: soft = F.softmax(torch.no_grad()(teacher)(x) / 4.0, dim=-1)
    logits = student(x)
    loss = F.cross_entropy(logits, y) + F.kl_div(
        F.log_softmax(logits / 4.0, dim=-1), soft, reduction="batchmean"
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        agreed += (teacher(x).argmax(1) == logits.argmax(1)).float().mean()  #- again
        #+ again: agreed += (soft.argmax(1) == logits.argmax(1)).float().mean()
    torch.save(student.state_dict(), os.path.join(folder, "last.pt"))  #- save
    # end of step
