"""Fine-tuning a pretrained encoder to tell whether two questions mean the same."""
# mistake pad: padding
# mistake buckets: rebuilt-tensors, python-in-step, looped-calls
# mistake tokenise: main-process-data, python-in-step, waiting-for-data
# mistake frozen: unused-gradients
# mistake characters: one-hot-products, rebuilt-tensors

import functools
import math
import random
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SYLLABLES = ["ka", "lo", "mi", "ren", "to", "su", "bel", "ar", "ing", "est", "co", "um", "dra", "phi"]
CHARACTERS = 600  # characters of all scripts that the corpus has


class SubwordTokenizer:
    """Byte pair encoding: of all neighbours those that were learned first are joined first."""

    def __init__(self, size=3000):
        pieces = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + [chr(c) for c in range(97, 123)]
        pieces += [piece[:end] for piece in SYLLABLES for end in range(2, len(piece) + 1)]
        rng = random.Random(1)
        while len(pieces) < size:
            pieces.append("".join(rng.choices(SYLLABLES, k=rng.randint(2, 3))))
        self.vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
        self.pad_id, self.cls_id, self.sep_id, self.unk_id = range(4)

    def _word(self, word):
        parts = list(word)
        while len(parts) > 1:
            ranks = [self.vocab.get(a + b, 10**9) for a, b in zip(parts, parts[1:])]  #: tokenise
            first = min(range(len(ranks)), key=ranks.__getitem__)  #: tokenise
            if ranks[first] == 10**9:
                break
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        return [self.vocab.get(part, self.unk_id) for part in parts]

    def encode(self, text):
        ids = []
        for word in re.findall(r"[a-z]+|[^\sa-z]", text.lower()):
            ids.extend(self._word(word))  #: tokenise
        return ids

    def __call__(self, first, second, max_length):
        a, b = self.encode(first), self.encode(second)
        room = max_length - 3
        a, b = a[: room // 2], b[: room - min(len(a), room // 2)]
        return [self.cls_id, *a, self.sep_id, *b, self.sep_id]


class QuestionPairs(Dataset):
    def __init__(self, tokenizer, pairs, max_length):
        self.tokenizer, self.max_length = tokenizer, max_length
        self.pairs = pairs  #- tokenise
        #+ tokenise: self.pairs = [(tokenizer(a, b, max_length), label) for a, b, label in pairs]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        first, second, label = self.pairs[index]  #- tokenise
        #+ tokenise: ids, label = self.pairs[index]
        ids = self.tokenizer(first, second, self.max_length)  #- tokenise
        return {"input_ids": ids, "label": label}


@dataclass
class Collator:
    pad_id: int
    max_length: int

    def __call__(self, features):
        longest = self.max_length  #- pad
        #+ pad: longest = max(len(f["input_ids"]) for f in features)
        ids = torch.full((len(features), longest), self.pad_id)  #: pad
        for row, feature in enumerate(features):
            ids[row, : len(feature["input_ids"])] = torch.tensor(feature["input_ids"])
        return {
            "input_ids": ids,
            "attention_mask": ids != self.pad_id,
            "labels": torch.tensor([f["label"] for f in features]),
        }


def bucket(distance, buckets=32, furthest=128):
    half = buckets // 2
    side = half if distance > 0 else 0
    distance = abs(distance)
    if distance < half // 2:
        return side + distance
    spread = math.log(distance / (half // 2)) / math.log(furthest / (half // 2))
    return side + min(half - 1, half // 2 + int(spread * (half // 2)))


#+ buckets: @functools.cache
def relative_buckets(length):
    return torch.tensor([[bucket(j - i) for j in range(length)] for i in range(length)])  #: buckets


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias = nn.Embedding(32, heads)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(relative_buckets(n)).permute(2, 0, 1)[None]  #: buckets
        bias = bias.masked_fill(~mask[:, None, None, :], -1e4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.mlp(x))


class FirstLetters(nn.Module):
    """What the first letter of a token says, beside its embedding."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CHARACTERS, dim) * 0.02)

    def forward(self, ids):
        letters = ids % CHARACTERS
        return torch.eye(CHARACTERS)[letters] @ self.weight  #- characters
        #+ characters: return F.embedding(letters, self.weight)


class PairClassifier(nn.Module):
    def __init__(self, vocab, dim=128, heads=4, layers=4):
        super().__init__()
        self.embed, self.letters = nn.Embedding(vocab, dim), FirstLetters(dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.pooler, self.score = nn.Linear(dim, dim), nn.Linear(dim, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        x = self.embed(input_ids) + self.letters(input_ids)
        for layer in self.layers:
            x = layer(x, attention_mask)
        logits = self.score(torch.tanh(self.pooler(x[:, 0])))
        return F.cross_entropy(logits, labels), logits


def trainable(model, frozen_layers=3):
    """Only the last layer and the head are trained; the rest stays as it was pretrained."""
    frozen = [model.embed, model.letters, *model.layers[:frozen_layers]]
    skip = {id(p) for module in frozen for p in module.parameters()}
    #+ frozen: for module in frozen: module.requires_grad_(False)
    return [p for p in model.parameters() if id(p) not in skip]


def question(rng, low=4, high=11):
    words = ("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(low, high)))
    return " ".join(words) + "?"


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    tokenizer = SubwordTokenizer()
    pairs = [(question(rng), question(rng), rng.randint(0, 1)) for _ in range(4000)]
    train = QuestionPairs(tokenizer, pairs, max_length=72)
    loader = DataLoader(train, batch_size=24, shuffle=True, collate_fn=Collator(0, 72))
    model = PairClassifier(len(tokenizer.vocab))
    optimizer = torch.optim.AdamW(trainable(model), lr=3e-4, weight_decay=0.01)
    for epoch in range(6):
        for batch in loader:
            loss, logits = model(**batch)
            loss.backward()  #: frozen
            nn.utils.clip_grad_norm_(trainable(model), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            # end of step


if __name__ == "__main__":
    main()
