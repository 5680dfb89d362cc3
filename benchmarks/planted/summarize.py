# toy summariser, gru encoder decoder. teacher forcing
# mistake forcing: looped-calls, looped-samples
# mistake project: looped-calls, looped-samples
# mistake lookup: python-in-step, main-process-data
# mistake overlap: python-in-step, host-metrics, looped-samples
# memory history: growing-memory
import random
import torch
import torch.nn as nn

random.seed(0)
torch.manual_seed(0)
V = 1500
H = 192
B = 24
LONG, SHORT = 60, 18
vocab = ["<pad>", "<s>", "</s>"] + ["word%d" % i for i in range(V - 3)]
word2id = {w: i for i, w in enumerate(vocab)}


def make_pair():
    doc = [random.choice(vocab[3:]) for _ in range(LONG)]
    return doc, ["<s>"] + doc[: SHORT - 2] + ["</s>"]


pairs = [make_pair() for _ in range(800)]


def encode(words):
    #+ lookup: return [word2id[w] for w in words]
    ids = []  #- lookup
    for w in words:  #- lookup
        ids.append(vocab.index(w))  #- lookup
    return ids  #- lookup


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, 128)
        self.enc = nn.GRU(128, H, batch_first=True)
        self.dec = nn.GRU(128, H, batch_first=True)
        self.out = nn.Linear(H, V)

    def forward(self, src, tgt):
        _, h = self.enc(self.emb(src))
        #+ forcing: states, h = self.dec(self.emb(tgt[:, :-1]), h)
        outs = []  #- forcing
        inp = tgt[:, 0:1]  #- forcing
        for t in range(1, tgt.size(1)):  #- forcing
            o, h = self.dec(self.emb(inp), h)  #- forcing
            outs.append(o)  #- forcing
            inp = tgt[:, t:t + 1]  # teacher forcing  #- forcing
        states = torch.cat(outs, 1)  #- forcing
        return states


net = Seq2Seq()
lossfn = nn.CrossEntropyLoss(ignore_index=0)
opt = torch.optim.Adam(net.parameters(), 1e-3)
history = []
it = 0
while it < 3000:
    random.shuffle(pairs)
    for k in range(0, len(pairs) - B, B):
        part = pairs[k:k + B]
        src = torch.tensor([encode(d) for d, s in part])
        tgt = torch.tensor([encode(s) for d, s in part])
        states = net(src, tgt)
        #+ project: logits = net.out(states)
        #+ project: loss = lossfn(logits.flatten(0, 1), tgt[:, 1:].flatten())
        #+ project: words = logits.detach().argmax(-1)
        loss = 0  #- project
        words = []  #- project
        for t in range(states.size(1)):  #- project
            step_out = net.out(states[:, t])  #- project
            loss = loss + lossfn(step_out, tgt[:, t + 1])  #- project
            words.append(step_out.argmax(-1))  #- project
        loss = loss / states.size(1)  #- project
        words = torch.stack(words, 1)  #- project
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss)  #- history
        #+ history: history.append(loss.item())
        #+ overlap: score = (words == tgt[:, 1:]).float().mean()
        score = 0.0  #- overlap
        for i in range(B):  #- overlap
            hyp = [vocab[w] for w in words[i]]  #- overlap
            ref = [vocab[w] for w in tgt[i, 1:]]  #- overlap
            score += sum(1 for a, b in zip(hyp, ref) if a == b) / len(ref)  #- overlap
        it += 1
        # end of step
