"""Nightly job: embeds all tickets with a text encoder, drops near duplicates, writes vectors for the index."""
# mistake lookup: python-in-step, main-process-data
# mistake head: unused-forward
# mistake pool: looped-samples, looped-calls
# mistake write: files-in-step, python-in-step, host-metrics
# mistake dedupe: joined-lists, rebuilt-tensors, growing-memory, growing-cache
# mistake order: padding
import itertools
import json
import logging
import os
import random
import re
import tempfile
import time

import numpy as np
import torch
from torch import nn

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger("export")
SPLIT = re.compile(r"\w+|[^\w\s]")
BATCH, DIM, VOCAB, KEEP = 24, 160, 4000, 1500


def fake_tickets(n, seed=0):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(VOCAB - 3)]
    for i in range(n):
        length = min(90, max(4, int(rng.lognormvariate(3.0, 0.7))))
        yield {"id": f"T{i:06d}", "text": " ".join(rng.choices(words, k=length)) + ".", "words": None}, words


class Tokenizer:
    def __init__(self, words):
        self.vocab = ["<pad>", "<unk>", "."] + words
        #+ lookup: self.index = {w: i for i, w in reversed(list(enumerate(self.vocab)))}

    def __call__(self, text):
        ids = []
        for piece in SPLIT.findall(text.lower()):
            #+ lookup: ids.append(self.index.get(piece, 1))
            ids.append(self.vocab.index(piece) if piece in self.vocab else 1)  #- lookup
        return ids


class Encoder(nn.Module):
    """A masked language model; its last hidden states are what we want."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, DIM), nn.Embedding(128, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 3 * DIM, batch_first=True, dropout=0.1)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm, self.vocab = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids, mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        h = self.norm(self.body(x, src_key_padding_mask=~mask))  #: order
        #+ head: return {"hidden": h}
        return {"hidden": h, "logits": self.vocab(h)}  #- head


class Deduper:
    """Drops tickets whose vector is (nearly) one of the last few."""

    def __init__(self, keep):
        self.keep, self.recent = keep, []
        #+ dedupe: self.bank, self.n = torch.zeros(keep, DIM), 0

    def fresh(self, vectors):
        #+ dedupe: near = (vectors @ self.bank.T > 0.98).any(1)
        #+ dedupe: at = torch.arange(self.n, self.n + len(vectors)) % self.keep
        #+ dedupe: self.bank[at] = vectors
        #+ dedupe: self.n += len(vectors)
        near = torch.zeros(len(vectors), dtype=torch.bool)  #- dedupe
        if self.recent:  #- dedupe
            near = (vectors @ torch.stack(self.recent).T > 0.98).any(1)  #- dedupe
        self.recent = (self.recent + [v for v in vectors])[-self.keep :]  #- dedupe
        return ~near


class Writer:
    def __init__(self, folder):
        self.folder, self.shard, self.pending = folder, 0, []
        self.lines = open(os.path.join(folder, "vectors.jsonl"), "w")

    def write(self, ids, vectors, fresh):
        #+ write: self.pending.append((ids, vectors.numpy()[fresh.numpy()]))
        #+ write: if len(self.pending) == 50: self.flush()
        for name, vector, keep in zip(ids, vectors, fresh):  #- write
            if keep:  #- write
                row = {"id": name, "vector": [round(float(v), 5) for v in vector]}  #- write
                self.lines.write(json.dumps(row) + "\n")  #- write
        self.lines.flush()

    def flush(self):
        np.save(os.path.join(self.folder, f"{self.shard % 3}.npy"), np.concatenate([v for _, v in self.pending]))
        self.shard, self.pending = self.shard + 1, []


def pool(hidden, mask):
    #+ pool: m = mask.unsqueeze(-1).float()
    #+ pool: return nn.functional.normalize((hidden * m).sum(1) / m.sum(1), dim=-1)
    rows = []  #- pool
    for states, keep in zip(hidden, mask):  #- pool
        mean = states[keep].mean(0)  #- pool
        rows.append(mean / mean.norm())  #- pool
    return torch.stack(rows)  #- pool


def chunks(tickets, size):
    iterator = iter(tickets)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def batches(tickets, tokenizer):
    #+ order: for window in chunks(tickets, 4 * BATCH): yield from chunks(sorted(window, key=lambda t: len(t["text"])), BATCH)
    yield from chunks(tickets, BATCH)  #- order


def pad(rows):
    width = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)  #: order
    for i, r in enumerate(rows):
        ids[i, : len(r)] = torch.tensor(r)
    return ids, ids != 0


@torch.inference_mode()
def export(count=24 * 700):
    torch.manual_seed(0)
    everything = list(fake_tickets(2400))
    tokenizer = Tokenizer(everything[0][1])
    tickets = itertools.islice(itertools.cycle([t for t, _ in everything]), count)
    model = Encoder().eval()
    deduper, writer = Deduper(KEEP), Writer(tempfile.mkdtemp())
    started, done = time.time(), 0
    for batch in batches(tickets, tokenizer):
        ids, mask = pad([tokenizer(t["text"]) for t in batch])  #: lookup
        out = model(ids, mask)  #: head+order
        vectors = pool(out["hidden"], mask)  #: pool
        fresh = deduper.fresh(vectors)  #: dedupe
        writer.write([t["id"] for t in batch], vectors, fresh)
        done += len(batch)
        # end of step
        if done % (BATCH * 100) == 0:
            logger.info("%d tickets, %.1f/s", done, done / (time.time() - started))


if __name__ == "__main__":
    export()
