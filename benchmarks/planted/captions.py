# image captioning: frozen-ish cnn + lstm decoder with attention, beam search on dev images
# mistake vocab: looped-calls, looped-samples
# mistake frozen: unused-gradients, no-grad-missing
# mistake keys: repeated-forward, looped-calls, repeated-calls, rebuilt-tensors
# mistake bleu: host-metrics, python-in-step, looped-samples
# mistake beams: looped-samples, single-samples, looped-calls, evaluation-dominates
# mistake fixed: padding
import math, random
from collections import Counter
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
random.seed(7)
VOCAB, EMB, HID, FEAT, MAXLEN = 1500, 96, 192, 64, 24
PAD, BOS, EOS = 0, 1, 2
BATCH, BEAM = 24, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.ReLU())
        self.body = nn.Sequential(block(3, 24), block(24, 48), block(48, FEAT))

    def forward(self, img):
        return self.body(img).flatten(2).transpose(1, 2)  # B, 64, FEAT


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, EMB, padding_idx=PAD)
        self.key = nn.Linear(FEAT, HID)
        self.query = nn.Linear(HID, HID)
        self.score = nn.Linear(HID, 1)
        self.cell = nn.LSTMCell(EMB + FEAT, HID)
        self.init_h, self.init_c = nn.Linear(FEAT, HID), nn.Linear(FEAT, HID)
        self.fc = nn.Linear(HID, VOCAB)

    def start(self, feats):
        m = feats.mean(1)
        return torch.tanh(self.init_h(m)), torch.tanh(self.init_c(m))

    #+ keys: def attend(self, feats, h, k):
    def attend(self, feats, h):  #- keys
        k = self.key(feats)  #- keys
        e = self.score(torch.tanh(k + self.query(h).unsqueeze(1)))
        return (e.softmax(1) * feats).sum(1)

    def step(self, w, state, feats, k):
        #+ keys: ctx = self.attend(feats, state[0], k)
        ctx = self.attend(feats, state[0])  #- keys
        return self.cell(torch.cat([self.emb(w), ctx], 1), state)

    def forward(self, feats, caps):
        state = self.start(feats)
        k = None
        #+ keys: k = self.key(feats)
        outs = []
        for t in range(caps.size(1) - 1):
            state = self.step(caps[:, t], state, feats, k)
            outs.append(self.fc(state[0]))  #- vocab
            #+ vocab: outs.append(state[0])
        outs = torch.stack(outs, 1)
        #+ vocab: outs = self.fc(outs)
        return outs


def collate(items):
    imgs = torch.stack([i for i, _ in items])
    n = MAXLEN  #- fixed
    #+ fixed: n = max(len(c) for _, c in items)
    caps = torch.full((len(items), n), PAD)  #: fixed
    for row, (_, c) in enumerate(items):
        caps[row, : len(c)] = torch.tensor(c)
    return imgs, caps


class Flickr:
    def __init__(self, n=600):
        self.imgs = torch.randn(n, 3, 64, 64)
        self.caps = [[BOS] + [min(VOCAB - 1, int(random.expovariate(0.01)) + 3) for _ in range(random.randint(5, 11))] + [EOS] for _ in range(n)]

    def __len__(self):
        return len(self.caps)

    def __getitem__(self, i):
        return self.imgs[i], self.caps[i]


def bleu2(hyp, ref):
    hits = []
    for n in (1, 2):
        h = Counter(tuple(hyp[i : i + n]) for i in range(len(hyp) - n + 1))
        r = Counter(tuple(ref[i : i + n]) for i in range(len(ref) - n + 1))
        hits.append((sum((h & r).values()) + 1) / (sum(h.values()) + 1))
    return math.exp(min(0, 1 - len(ref) / max(1, len(hyp)))) * math.sqrt(hits[0] * hits[1])


def batch_bleu(logits, target):
    pred = logits.argmax(-1)
    scores = []
    for b in range(len(pred)):
        hyp, ref = [], []  #- bleu
        for t in range(pred.size(1)):  #- bleu
            if target[b, t] != PAD:  #- bleu
                hyp.append(pred[b, t].item())  #- bleu
                ref.append(target[b, t].item())  #- bleu
        #+ bleu: if b == 0: P, T = pred.tolist(), target.tolist()
        #+ bleu: ref = [w for w in T[b] if w != PAD]
        #+ bleu: hyp = P[b][: len(ref)]
        scores.append(bleu2(hyp, ref))
    return sum(scores) / len(scores)


@torch.no_grad()
def beam_search(dec, feats, length=10):
    """feats: 1 image. keeps BEAM hypotheses"""
    k = dec.key(feats)
    h, c = dec.start(feats)
    beams = [([BOS], 0.0, (h, c))]
    for _ in range(length):
        new = []
        #+ beams: n = len(beams)
        #+ beams: state = dec.step(torch.tensor([b[0][-1] for b in beams]), tuple(torch.cat(s) for s in zip(*[b[2] for b in beams])), feats.expand(n, -1, -1), k)
        #+ beams: val, idx = dec.fc(state[0]).log_softmax(-1).topk(BEAM)
        #+ beams: val, idx = val.tolist(), idx.tolist()
        #+ beams: for j, (words, score, _) in enumerate(beams): new += [(words + [i], score + v, (state[0][j : j + 1], state[1][j : j + 1])) for v, i in zip(val[j], idx[j])]
        for words, score, state in beams:  #- beams
            state = dec.step(torch.tensor([words[-1]]), state, feats, k)  #- beams
            val, idx = dec.fc(state[0]).log_softmax(-1).topk(BEAM)  #- beams
            for v, i in zip(val[0], idx[0]):  #- beams
                new.append((words + [i.item()], score + v.item(), state))  #- beams
        beams = sorted(new, key=lambda b: -b[1])[:BEAM]
    return beams[0][0]


data = Flickr()
enc, dec = Encoder(), Decoder()
#+ frozen: for p in enc.parameters(): p.requires_grad = False
opt = torch.optim.Adam(dec.parameters(), 1e-3)
loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, collate_fn=collate, drop_last=True)
it = 0
for epoch in range(60):
    run_loss = run_bleu = 0.0
    for imgs, caps in loader:
        feats = enc(imgs)  #: frozen
        logits = dec(feats, caps)  #: fixed+vocab+keys
        loss = F.cross_entropy(logits.flatten(0, 1), caps[:, 1:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()  #: frozen
        opt.step()
        run_loss += loss.item()
        run_bleu += batch_bleu(logits.detach(), caps[:, 1:])  #: bleu
        if it % 3 == 0:
            sample = beam_search(dec, feats[:1].detach())  #: beams
        it += 1
        # end of step
    print(epoch, run_loss / len(loader), run_bleu / len(loader), sample)
