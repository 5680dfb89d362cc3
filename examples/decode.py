"""Generate tokens with a small Llama-style decoder (random weights) and a cache of keys, values."""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return (x * scale).type_as(x) * self.weight


def rotary_angles(head_width: int, positions: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position's rotation, one for each pair of channels."""
    rates = base ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(positions), rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention; keys and values of earlier tokens are kept in buffers."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.q = nn.Linear(width, heads * self.head_width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def make_cache(self, batch: int, positions: int) -> None:
        shape = (batch, self.kv_heads, positions, self.head_width)
        like = self.k.weight
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x: Tensor, start: int, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        end = start + length
        q = self.q(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        self.keys[:, :, start:end] = rotate(k, cos, sin)
        self.values[:, :, start:end] = v
        groups = self.heads // self.kv_heads
        keys = self.keys[:, :, :end].repeat_interleave(groups, dim=1)
        values = self.values[:, :, :end].repeat_interleave(groups, dim=1)
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), keys, values, is_causal=length > 1
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.mlp_norm = RMSNorm(width)
        self.mlp = FeedForward(width, hidden)

    def forward(self, x: Tensor, start: int, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), start, cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    def __init__(
        self, vocabulary: int, layers: int, width: int, heads: int, kv_heads: int, positions: int
    ) -> None:
        super().__init__()
        hidden = (8 * width // 3 + 63) // 64 * 64
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cos, sin = rotary_angles(width // heads, positions)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens: Tensor, start: int) -> Tensor:
        """Logits of the token after the last one; `start` is the first one's position."""
        end = start + tokens.shape[1]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, start, self.cos[start:end], self.sin[start:end])
        return self.head(self.norm(x[:, -1]))


def sample(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    best, tokens = torch.topk(logits / temperature, top_k, dim=-1)
    choice = torch.multinomial(F.softmax(best.float(), dim=-1), num_samples=1)
    return tokens.gather(1, choice)


@torch.inference_mode()
def generate(model: Decoder, prompt: Tensor, new: int, temperature: float, top_k: int) -> Tensor:
    batch, length = prompt.shape
    for layer in model.layers:
        layer.attention.make_cache(batch, length + new)
    token = sample(model(prompt, 0), temperature, top_k)
    tokens = [prompt, token]
    for position in range(length, length + new - 1):
        token = sample(model(token, position), temperature, top_k)
        tokens.append(token)
    return torch.cat(tokens, dim=1)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = device.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16 if large else 6)
    parser.add_argument("--width", type=int, default=2048 if large else 384)
    parser.add_argument("--heads", type=int, default=32 if large else 6)
    parser.add_argument("--kv-heads", type=int, default=8 if large else 2)
    parser.add_argument("--vocabulary", type=int, default=32_000 if large else 8_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128 if large else 32, help="tokens")
    parser.add_argument("--new", type=int, default=128 if large else 64, help="tokens per reply")
    parser.add_argument("--replies", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    dtype = torch.bfloat16 if large else torch.float32
    model = Decoder(
        args.vocabulary,
        args.layers,
        args.width,
        args.heads,
        args.kv_heads,
        positions=args.prompt + args.new,
    )
    model = model.to(device=device, dtype=dtype).eval()
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size / 1e6:.1f} M parameters in {dtype}")

    for reply in range(args.replies):
        prompt = torch.randint(args.vocabulary, (args.batch, args.prompt), device=device)
        began = time.perf_counter()
        tokens = generate(model, prompt, args.new, args.temperature, args.top_k)
        last = tokens[0, -5:].tolist()
        rate = args.batch * args.new / (time.perf_counter() - began)
        print(f"reply {reply}: {rate:.0f} tokens/s, ends in {last}", flush=True)


if __name__ == "__main__":
    main()
