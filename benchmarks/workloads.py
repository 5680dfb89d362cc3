"""Real models with random weights and data, as plain training or inference scripts.

    boundby run benchmarks/workloads.py bert-large
    boundby run benchmarks/workloads.py gpt2 --batch 16 --compile

Each is what a user would write: default AdamW, autocast to bfloat16, eager attention. Needs
transformers and timm for the models that come from them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
from collections.abc import Callable, Generator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]
Loss = Callable[[nn.Module], torch.Tensor]


def tokens(vocabulary: int, batch: int, length: int, device: str) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), device=device)


def language_model(model: nn.Module, vocabulary: int, batch: int, length: int, device: str) -> Loss:
    ids = tokens(vocabulary, batch, length, device)
    return lambda model: model(input_ids=ids, labels=ids).loss


def step_models(args: argparse.Namespace, batch: int, side: int) -> torch.Tensor:
    images = torch.randn(args.batch or batch, 3, side, side, device=args.device)
    return images.to(memory_format=torch.channels_last) if args.channels_last else images


def classifier(classes: int, images: torch.Tensor) -> Loss:
    batch, device = len(images), images.device
    labels = torch.randint(0, classes, (batch,), device=device)
    return lambda model: F.cross_entropy(model(images), labels)


def bert(args: argparse.Namespace, layers: int, width: int, batch: int, length: int) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        attn_implementation=args.attention,
    )
    model = BertForMaskedLM(config)
    return model, language_model(model, config.vocab_size, args.batch or batch, length, args.device)


def gpt2(args: argparse.Namespace) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation=args.attention)
    model = GPT2LMHeadModel(config)
    return model, language_model(model, config.vocab_size, args.batch or 8, 1024, args.device)


def llama_config(args: argparse.Namespace) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
        attn_implementation=args.attention,
    )


def llama(args: argparse.Namespace) -> Any:
    from transformers import LlamaForCausalLM

    config = llama_config(args)
    model = LlamaForCausalLM(config)
    return model, language_model(model, config.vocab_size, args.batch or 4, 1024, args.device)


def t5(args: argparse.Namespace) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    )
    config._attn_implementation = args.attention
    model = T5ForConditionalGeneration(config)
    return model, language_model(model, config.vocab_size, args.batch or 8, 512, args.device)


def vision(args: argparse.Namespace, name: str, batch: int) -> Any:
    import timm

    model = timm.create_model(name, num_classes=1000)
    return model, classifier(1000, step_models(args, batch, 224))


class UNet(nn.Module):
    """Two levels down, two up, skips between: convolutions, group norms, interpolation."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = self._block(3, width)
        self.down = nn.ModuleList(
            [self._block(width, 2 * width), self._block(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([self._block(6 * width, 2 * width), self._block(3 * width, width)])
        self.leave = nn.Conv2d(width, 3, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(8, outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.GroupNorm(8, outputs),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        skips = []
        for block in self.down:
            skips.append(x)
            x = block(F.max_pool2d(x, 2))
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = block(torch.cat([x, skips.pop()], dim=1))
        return self.leave(x)


def unet(args: argparse.Namespace) -> Any:
    images = step_models(args, 16, 128)
    return UNet(), lambda model: F.mse_loss(model(images), images)


class Tagger(nn.Module):
    """Embedding, a two-layer LSTM, a projection to the vocabulary."""

    def __init__(self, vocabulary: int = 10_000, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def lstm(args: argparse.Namespace) -> Any:
    ids = tokens(10_000, args.batch or 32, 128, args.device)
    return Tagger(), lambda model: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


class TwoTowers(nn.Module):
    """Images and texts, already encoded, drawn together: all of the one with all of the other."""

    def __init__(self, width: int = 2048, layers: int = 6, out: int = 512) -> None:
        super().__init__()
        self.images, self.texts = (
            nn.Sequential(
                *(
                    nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
                    for _ in range(layers)
                ),
                nn.Linear(width, out),
            )
            for _ in range(2)
        )
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        images, texts = (
            F.normalize(tower(x), dim=-1)
            for tower, x in ((self.images, images), (self.texts, texts))
        )
        return self.scale.exp() * images @ texts.T


def contrastive(args: argparse.Namespace) -> Any:
    batch = args.batch or 8192
    images, texts = (torch.randn(batch, 2048, device=args.device) for _ in range(2))
    labels = torch.arange(batch, device=args.device)

    def loss_of(model: nn.Module) -> torch.Tensor:
        logits = model(images, texts)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2

    return TwoTowers(), loss_of


class MixtureOfExperts(nn.Module):
    """Top-2 routing over experts as people write it: a loop, a mask, an index_add."""

    def __init__(self, width: int = 1024, experts: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.routers = nn.ModuleList([nn.Linear(width, experts) for _ in range(layers)])
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
                for _ in range(experts)
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for router, experts in zip(self.routers, self.experts, strict=True):
            weights, chosen = router(x).softmax(-1).topk(2, dim=-1)
            out = torch.zeros_like(x)
            for index, expert in enumerate(experts):
                rows, slots = torch.where(chosen == index)
                share = weights[rows, slots, None].to(x.dtype)
                out.index_add_(0, rows, (expert(x[rows]) * share).to(out.dtype))
            x = x + out
        return x


def mixture(args: argparse.Namespace) -> Any:
    x = torch.randn(512 * (args.batch or 8), 1024, device=args.device)
    return MixtureOfExperts(), lambda model: model(x).pow(2).mean()


TRAINING: dict[str, Callable[[argparse.Namespace], Any]] = {
    "bert": lambda args: bert(args, layers=12, width=1024, batch=8, length=512),
    "bert-large": lambda args: bert(args, layers=24, width=1024, batch=8, length=512),
    "bert-base-b1": lambda args: bert(args, layers=12, width=768, batch=1, length=128),
    "bert-short": lambda args: bert(args, layers=12, width=768, batch=64, length=64),
    "gpt2": gpt2,
    "llama": llama,
    "resnet50": lambda args: vision(args, "resnet50", 64),
    "vit": lambda args: vision(args, "vit_base_patch16_224", 64),
    "convnext": lambda args: vision(args, "convnext_tiny", 64),
    "swin": lambda args: vision(args, "swin_tiny_patch4_window7_224", 64),
    "efficientnet": lambda args: vision(args, "efficientnet_b0", 64),
    "t5": t5,
    "unet": unet,
    "lstm": lstm,
    "contrastive": contrastive,
    "moe": mixture,
}
INFERENCE = ("llama-decode",)
# Imported first of all, as scripts do, before anything is set.
LIBRARIES = {
    "bert": "transformers.models.bert.modeling_bert",
    "gpt2": "transformers.models.gpt2.modeling_gpt2",
    "llama": "transformers.models.llama.modeling_llama",
    "resnet50": "timm",
    "vit": "timm",
    "convnext": "timm",
    "swin": "timm",
    "efficientnet": "timm",
    "t5": "transformers.models.t5.modeling_t5",
}


def step_of(args: argparse.Namespace) -> Step:
    with torch.device(args.device):
        model, loss_of = TRAINING[args.model](args)
    model = model.train(not args.evaluate)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if args.compile:
        model = torch.compile(model, mode=args.mode)
    # What autocast has cast is kept from step to step inside a graph only where it is cast there.
    autocast = torch.autocast(
        args.device,
        torch.bfloat16,
        enabled=args.precision == "bf16",
        cache_enabled=not args.graphs,
    )

    if args.evaluate:

        @torch.inference_mode()
        def evaluate() -> torch.Tensor:
            with autocast:
                return loss_of(model)

        return graphed(evaluate) if args.graphs else evaluate

    chosen: dict[str, Any] = {"fused": True} if args.fused else {}
    if args.graphs and args.fused:
        chosen["capturable"] = True
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **chosen)

    def gradients() -> torch.Tensor:
        # Captured without any, a graph makes gradients of its own and writes them anew each time.
        optimizer.zero_grad()
        with autocast:
            loss = loss_of(model)
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        loss = gradients()
        optimizer.step()
        return loss

    if not args.graphs:
        return step
    if args.fused:
        return graphed(step)
    # Captured, an optimizer that is not fused takes more kernels than before: it stays outside.
    captured = graphed(gradients)

    def replayed() -> None:
        captured()
        optimizer.step()

    return replayed


def graphed(step: Step) -> Step:
    """Captured once and replayed; the step is kept, for the tensors that the graph reads."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return functools.partial(replay, graph, step)


def replay(graph: torch.cuda.CUDAGraph, captured: Step) -> None:
    del captured
    graph.replay()


def decoding(args: argparse.Namespace, count: int) -> Generator[None]:
    """Greedy decoding with a cache, one token a step."""
    from transformers import DynamicCache, LlamaForCausalLM

    config = llama_config(args)
    with torch.device(args.device):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    if args.compile:
        model = torch.compile(model, mode=args.mode)
    cache = DynamicCache()
    ids = tokens(config.vocab_size, args.batch or 1, 128, args.device)
    with torch.inference_mode():
        for _ in range(count):
            out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            ids = out.logits[:, -1:].argmax(-1)
            yield


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=[*TRAINING, *INFERENCE])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", help="of torch.compile: reduce-overhead, max-autotune")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--graphs", action="store_true", help="the whole step as a CUDA graph")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--evaluate", action="store_true", help="without gradients or optimizer")
    parser.add_argument("--attention", default="eager", choices=["eager", "sdpa"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "float32", "tf32"])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default)
    return parser


def prepare(args: argparse.Namespace) -> None:
    library = LIBRARIES.get(args.model.partition("-")[0])
    if library is not None:
        importlib.import_module(library)
    torch.manual_seed(0)
    if args.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if args.compile or args.graphs:
        without_masks()


def without_masks() -> None:
    """Keep attention on its fast kernels: nothing is padded here, so there is nothing to mask.

    transformers makes a mask all the same while a model is traced or captured.
    """
    with contextlib.suppress(ImportError):
        from transformers import masking_utils

        masking_utils.is_tracing = lambda *_: False


def main() -> None:
    args = arguments().parse_args()
    prepare(args)
    if args.model in INFERENCE:
        with contextlib.closing(decoding(args, args.steps)) as steps:
            for _ in steps:
                pass
        return
    step = step_of(args)
    for _ in range(args.steps):
        step()


if __name__ == "__main__":
    main()
