"""Speech recognition with CTC; features are normalised and losses taken utterance by utterance."""
# mistake loop: looped-samples, looped-calls

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
TOKENS, FRAMES, B = 30, 40, 16


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(40, 96, 5, padding=2)
        self.rnn = nn.GRU(96, 96, batch_first=True)
        self.out = nn.Linear(96, TOKENS)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)


model = Acoustic()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
speech, texts = torch.randn(200, FRAMES, 40), torch.randint(1, TOKENS, (200, 20))
frames, letters = torch.full((B,), FRAMES), torch.full((B,), 20)
for step in range(400):
    at = torch.randint(0, 200, (B,))
    x = torch.stack([(one - one.mean(0)) / one.std(0) for one in speech[at]])  #- loop
    #+ loop: x = speech[at]; x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    log_probs = model(x)
    losses = [F.ctc_loss(log_probs[i], texts[at[i]], frames[i], letters[i]) for i in range(B)]  #- loop
    loss = torch.stack(losses).mean()  #- loop
    #+ loop: loss = F.ctc_loss(log_probs.transpose(0, 1), texts[at], frames, letters)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # end of step
