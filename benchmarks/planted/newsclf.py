"""A small transformer classifies headlines."""
# mistake tok: main-process-data, python-in-step
# mistake pos: rebuilt-tensors, looped-calls
# mistake clip: looped-parameters
# mistake softmax: softmax-log-apart
import math
import random
import re
from collections import Counter

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

rnd = random.Random(0)
WORDS = ["".join(rnd.choice("abcdefghij") for _ in range(rnd.randint(2, 9))) for _ in range(3000)]
TEXTS = [
    " ".join(rnd.choice(WORDS) + rnd.choice(["", "", ",", "."]) for _ in range(rnd.randint(50, 64)))
    for _ in range(2000)
]
LABELS = [rnd.randint(0, 9) for _ in TEXTS]
MAX_LEN, DIM = 64, 96


class Tokenizer:
    def __init__(self, texts):
        counts = Counter(w for t in texts for w in self.words(t))
        self.vocab = {w: i + 2 for i, (w, _) in enumerate(counts.most_common(2500))}

    @staticmethod
    def words(text):
        text = re.sub(r"([.,!?])", r" \1 ", text.lower())  #: tok
        text = re.sub(r"\s+", " ", text)  #: tok
        return text.strip().split(" ")  #: tok

    def __call__(self, text):
        pieces = []
        for word in self.words(text):  #: tok
            if word in self.vocab:  #: tok
                pieces.append(self.vocab[word])  #: tok
            else:
                pieces.extend(self.vocab.get(c, 1) for c in word)  #: tok
        return pieces[:MAX_LEN]  #: tok


tokenizer = Tokenizer(TEXTS)
CACHE = {text: tokenizer(text) for text in TEXTS}


def collate(batch):
    texts, labels = zip(*batch)
    ids = [tokenizer(t) for t in texts]  #- tok
    #+ tok: ids = [CACHE[t] for t in texts]
    ids = [i + [0] * (MAX_LEN - len(i)) for i in ids]
    return torch.tensor(ids), torch.tensor(labels)


def positional(length, dim):
    pe = torch.zeros(length, dim)  #: pos
    position = torch.arange(length).unsqueeze(1).float()  #: pos
    for i in range(0, dim, 2):  #: pos
        pe[:, i] = torch.sin(position[:, 0] / 10000 ** (i / dim))  #: pos
        pe[:, i + 1] = torch.cos(position[:, 0] / 10000 ** (i / dim))  #: pos
    return pe


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(2600, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(DIM, 10)
        self.register_buffer("pe", positional(MAX_LEN, DIM))

    def forward(self, ids):
        x = self.emb(ids) * math.sqrt(DIM)
        x = x + positional(ids.size(1), DIM)  #- pos
        #+ pos: x = x + self.pe[: ids.size(1)]
        x = self.enc(x, src_key_padding_mask=ids == 0)
        return self.out(x.mean(1))


def main():
    model = Classifier()
    loader = DataLoader(list(zip(TEXTS, LABELS)), batch_size=16, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for epoch in range(10):
        for ids, labels in loader:
            logits = model(ids)
            probs = torch.softmax(logits, dim=-1)  #- softmax
            loss = -torch.log(probs[torch.arange(len(labels)), labels] + 1e-9).mean()  #- softmax
            #+ softmax: loss = nn.functional.cross_entropy(logits, labels)
            loss.backward()
            for p in model.parameters():  #- clip
                if p.grad is not None:  #- clip
                    torch.nn.utils.clip_grad_norm_(p, 1.0)  #- clip
            #+ clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            # end of step


main()
