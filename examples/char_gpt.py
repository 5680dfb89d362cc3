"""Train a small character-level GPT on the texts in data/, then let it write a few lines."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DATA = Path(__file__).parent / "data"


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.drop_weights = nn.Dropout(dropout)
        self.drop_output = nn.Dropout(dropout)
        self.register_buffer("past", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(~self.past[:length, :length], float("-inf"))
        weights = self.drop_weights(F.softmax(scores, dim=-1))
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        return self.drop_output(self.project(mixed))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, context, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharGPT(nn.Module):
    def __init__(
        self, vocabulary: int, layers: int, width: int, heads: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.context = context
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, context, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.characters(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@torch.no_grad()
def write(model: CharGPT, start: Tensor, characters: int) -> Tensor:
    """Continue `start`, one character at a time."""
    model.eval()
    tokens = start
    for _ in range(characters):
        logits = model(tokens[:, -model.context :])[:, -1] / 0.8
        choice = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        tokens = torch.cat([tokens, choice], dim=1)
    return tokens


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = device.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12 if large else 4)
    parser.add_argument("--width", type=int, default=768 if large else 128)
    parser.add_argument("--heads", type=int, default=12 if large else 4)
    parser.add_argument("--context", type=int, default=256 if large else 96)
    parser.add_argument("--batch", type=int, default=64 if large else 16)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-4 if large else 3e-3)
    parser.add_argument("--write", type=int, default=200, help="characters to write at the end")
    parser.add_argument("--seed", type=int, default=1337)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    text = "\n".join(path.read_text() for path in sorted(DATA.glob("*.txt")))
    alphabet = sorted(set(text))
    index_of = {character: index for index, character in enumerate(alphabet)}
    data = torch.tensor([index_of[character] for character in text], device=device)
    window = torch.arange(args.context, device=device)

    model = CharGPT(
        len(alphabet), args.layers, args.width, args.heads, args.context, args.dropout
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(text):,} characters of {len(alphabet)} kinds, {size / 1e6:.2f} M parameters")

    began = time.perf_counter()
    for step in range(args.steps):
        starts = torch.randint(len(data) - args.context, (args.batch, 1), device=device)
        inputs, targets = data[starts + window], data[starts + window + 1]
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            seconds = time.perf_counter() - began
            print(f"step {step:4d}  loss {loss.item():.3f}  {seconds:.1f} s", flush=True)

    if args.write:
        written = write(model, data[:1].view(1, 1), args.write)
        print("".join(alphabet[index] for index in written[0].tolist()))


if __name__ == "__main__":
    main()
