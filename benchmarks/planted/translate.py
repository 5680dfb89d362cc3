"""Seq2seq with Bahdanau attention, GRU encoder and decoder."""
# mistake encoder: looped-calls, looped-samples
# mistake decoder: looped-calls, looped-samples
# mistake bleu: host-metrics, python-in-step, looped-samples
# mistake gradlog: looped-parameters
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
V, E, H, B, S, T = 1200, 64, 128, 32, 20, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, E)
        self.rnn = nn.GRU(E, H, batch_first=True)

    def forward(self, src):
        x = self.embedding(src)
        hidden = None  #- encoder
        outputs = []  #- encoder
        for t in range(x.size(1)):  #- encoder
            out, hidden = self.rnn(x[:, t : t + 1], hidden)  #- encoder
            outputs.append(out)  #- encoder
        return torch.cat(outputs, 1), hidden  #- encoder
        #+ encoder: return self.rnn(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, E)
        self.W = nn.Linear(2 * H, H)
        self.v = nn.Linear(H, 1, bias=False)
        self.cell = nn.GRUCell(E + H, H)
        self.out = nn.Linear(H, V)

    def attend(self, hidden, memory):
        h = hidden.unsqueeze(1).expand(-1, memory.size(1), -1)
        energy = torch.tanh(self.W(torch.cat([h, memory], -1)))
        weights = F.softmax(self.v(energy).squeeze(-1), -1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)

    def forward(self, trg, hidden, memory):
        logits, states = [], []
        for t in range(trg.size(1)):
            emb = self.embedding(trg[:, t])
            hidden = self.cell(torch.cat([emb, self.attend(hidden, memory)], -1), hidden)
            states.append(hidden)
            logits.append(self.out(hidden))  #- decoder
            #+ decoder: pass
        return torch.stack(logits, 1)  #- decoder
        #+ decoder: return self.out(torch.stack(states, 1))


def bleu1(pred, ref):
    score = 0.0
    for p, r in zip(pred, ref):
        p_words = [str(int(t)) for t in p]  #: bleu
        r_words = [str(int(t)) for t in r]  #: bleu
        hits = sum(1 for w in p_words if w in r_words)  #: bleu
        score += hits / len(p_words)
    return score / len(pred)


enc, dec = Encoder(), Decoder()
params = list(enc.parameters()) + list(dec.parameters())
opt = torch.optim.Adam(params, lr=1e-3)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for it in range(600):
    src = torch.randint(1, V, (B, S))
    trg = torch.randint(1, V, (B, T + 1))
    opt.zero_grad()
    memory, hidden = enc(src)
    logits = dec(trg[:, :-1], hidden[0], memory)
    loss = criterion(logits.reshape(-1, V), trg[:, 1:].reshape(-1))
    loss.backward()
    total_norm = 0.0  #- gradlog
    for p in params:  #- gradlog
        total_norm += p.grad.data.norm(2).item() ** 2  #- gradlog
    total_norm = total_norm**0.5  #- gradlog
    #+ gradlog: pass
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    score = bleu1(logits.argmax(-1), trg[:, 1:])  #- bleu
    #+ bleu: pass
    # end of step
