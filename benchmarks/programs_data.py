"""Made-up data for the public programs: the form that each reads, with random contents.

Every function writes into one folder, with fixed seeds, so that two runs read the same.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

_WORDS = 2000


def mnist(folder: Path, images: int = 1920, tests: int = 256) -> None:
    """torchvision's MNIST in the form of its download."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name, count in (("train", images), ("t10k", tests)):
        pictures = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + pictures.tobytes())
        head = struct.pack(">II", 2049, count)
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def large_mnist(folder: Path) -> None:
    """As many images as the real one, for programs that take them all as one batch."""
    mnist(folder, images=60000, tests=10000)


def cifar(folder: Path, images: int = 640) -> None:
    """torchvision's CIFAR-10, as it is after its download, but with other check sums."""
    import pickle

    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        pictures = draw.integers(0, 256, (images // 5, 3072), dtype=np.uint8)
        labels = draw.integers(0, 10, len(pictures)).tolist()
        (batches / name).write_bytes(pickle.dumps({"data": pictures, "labels": labels}))
    kinds = {"label_names": [f"kind{number}" for number in range(10)]}
    (batches / "batches.meta").write_bytes(pickle.dumps(kinds))


def words(path: Path, count: int = 40_000) -> None:
    """A text of made-up words, a sentence per line."""
    draw = random.Random(0)
    known = [
        "".join(draw.choices("abcdefghiklmnoprstuvw", k=draw.randint(2, 9))) for _ in range(_WORDS)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for _ in range(count // 10):
            file.write(" ".join(draw.choices(known, k=10)) + " .\n")
        file.write("O God, O God!\n")  # what some programs begin their samples with


def names(path: Path) -> None:
    """One short word per line."""
    draw = random.Random(0)
    lines = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9)))
        for _ in range(3000)
    ]
    path.write_text("\n".join(lines) + "\n")


def wikitext(folder: Path) -> None:
    """The three parts of a corpus of words."""
    for part, count in (("train", 60_000), ("valid", 3_000), ("test", 3_000)):
        words(folder / f"{part}.txt", count)


def shakespeare(folder: Path) -> None:
    """nanoGPT's prepared form of a text: 16-bit tokens, and what they mean."""
    import pickle

    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 200_000), ("val", 20_000)):
        draw.integers(0, 65, count, dtype=np.uint16).tofile(folder / f"{part}.bin")
    letters = [chr(48 + i) for i in range(65)]
    meta = {
        "vocab_size": 65,
        "itos": dict(enumerate(letters)),
        "stoi": {c: i for i, c in enumerate(letters)},
    }
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def stories(folder: Path) -> None:
    """Stories in 16-bit tokens, each beginning with token 1."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(2):
        tokens = draw.integers(3, 512, 100_000, dtype=np.uint16)
        tokens[::200] = 1
        tokens.tofile(folder / f"data{part:02d}.bin")


def lightning_words(folder: Path) -> None:
    """A corpus of words where Lightning's demonstration keeps it."""
    words(folder / "wikitext-2.txt", 150_000)


def cora(folder: Path, papers: int = 2708, features: int = 1433) -> None:
    """A graph of papers: words, subjects and citations."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cora.content").open("w") as file:
        for paper in range(papers):
            bits = (draw.random(features) < 0.013).astype(int)
            file.write(f"{paper}\t" + "\t".join(map(str, bits)) + f"\tsubject{paper % 7}\n")
    pairs = draw.integers(0, papers, (5429, 2))
    (folder / "cora.cites").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))


def smaller_cora(folder: Path) -> None:
    """The least graph of papers that programs divide into parts as they do the whole."""
    cora(folder, papers=1500, features=200)


def images(folder: Path, classes: int = 6, count: int = 20, size: int = 96) -> None:
    """Folders of pictures, one per class."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for kind in range(classes):
        (folder / f"class{kind}").mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture = draw.integers(0, 256, (size, size, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / f"class{kind}" / f"{number}.jpg")


def split_images(folder: Path) -> None:
    """The same, for training and for validation."""
    images(folder / "train")
    images(folder / "val", count=3)


def photographs(folder: Path) -> None:
    """The two parts of BSDS300, larger pictures without classes."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for part, count in (("train", 40), ("test", 6)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture = draw.integers(0, 256, (321, 481, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / part / f"{number}.jpg")


def masked_photographs(folder: Path) -> None:
    """Pictures, and a mask of two values for each."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for part in ("imgs", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(60):
        picture = draw.integers(0, 256, (320, 480, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / "imgs" / f"{number}.png")
        mask = draw.integers(0, 2, (320, 480), dtype=np.uint8)
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")


def waves(path: Path) -> None:
    """Sine waves of shifted phases, as generate_sine_wave.py writes them."""
    import torch

    draw = np.random.RandomState(2)
    shift = draw.randint(-80, 80, 100).reshape(100, 1)
    torch.save(np.sin((np.arange(1000) + shift) / 20.0).astype("float64"), path)


def tokenizer(folder: Path) -> None:
    """A tokenizer and a small GPT-2, with a text to train it on."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    words(folder / "train.txt", 60_000)
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=["<unk>", "<eos>"])
    made.train([str(folder / "train.txt")], trainer)
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>").save_pretrained(folder)
    sizes = {"n_embd": 128, "n_layer": 2, "n_head": 2, "n_positions": 128}
    GPT2Config(vocab_size=1000, bos_token_id=1, eos_token_id=1, **sizes).save_pretrained(folder)


def checkpoint(folder: Path) -> None:
    """A small GPT of nanoGPT's, with random weights, as its training saves it."""
    import sys

    import torch

    sys.path.insert(0, str(folder.parent))
    try:
        from model import GPT, GPTConfig  # type: ignore[import-not-found, unused-ignore]
    finally:
        del sys.path[0], sys.modules["model"]
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128, "vocab_size": 65}
    torch.manual_seed(0)
    model = GPT(GPTConfig(**sizes, bias=False, dropout=0.0))
    kept = {"model_args": {**sizes, "bias": False, "dropout": 0.0}, "model": model.state_dict()}
    folder.mkdir()
    torch.save({**kept, "config": {"dataset": "shakespeare_char"}}, folder / "ckpt.pt")


def planetoid(folder: Path) -> None:
    """The graph of papers in the eight files of Planetoid."""
    import pickle

    from scipy.sparse import random as random_matrix

    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    papers, tests, trained, features, classes = 2708, 1000, 140, 1433, 7
    x = random_matrix(papers, features, 0.013, "csr", np.float32, draw)
    y = np.eye(classes, dtype=np.int32)[draw.integers(0, classes, papers)]
    others = papers - tests
    parts = {
        "x": x[:trained],
        "y": y[:trained],
        "allx": x[:others],
        "ally": y[:others],
        "tx": x[others:],
        "ty": y[others:],
        "graph": {one: draw.integers(0, papers, 4).tolist() for one in range(papers)},
    }
    for name, part in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    lines = (f"{one}\n" for one in range(others, papers))
    (folder / "ind.cora.test.index").write_text("".join(lines))


def digits(folder: Path) -> None:
    """Small digits one by one, as the reproduction of 1989 prepares them."""
    import torch

    draw = torch.Generator().manual_seed(0)
    for part, count in (("train", 7291), ("test", 2007)):
        labels = torch.randint(0, 10, (count,), generator=draw)
        targets = 2 * torch.nn.functional.one_hot(labels, 10).float() - 1
        pictures = 2 * torch.rand(count, 1, 16, 16, generator=draw) - 1
        torch.save((pictures, targets), folder / f"{part}1989.pt")


def cifar100(folder: Path, images: int = 640) -> None:
    """torchvision's CIFAR-100, as it is after its download, but with other check sums."""
    import pickle

    batches = folder / "cifar-100-python"
    batches.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name, count in (("train", images), ("test", images // 5)):
        pictures = draw.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = draw.integers(0, 100, count).tolist()
        (batches / name).write_bytes(pickle.dumps({"data": pictures, "fine_labels": labels}))
    kinds = {"fine_label_names": [f"kind{number}" for number in range(100)]}
    (batches / "meta").write_bytes(pickle.dumps(kinds))


def boxes(folder: Path) -> None:
    """Pictures with labelled boxes, in the form of YOLO."""
    images(folder / "images" / "train", classes=1, count=96)
    images(folder / "images" / "val", classes=1, count=16)
    draw = np.random.default_rng(0)
    for picture in sorted(folder.rglob("*.jpg")):
        parts = ["labels" if part == "images" else part for part in picture.parts]
        label = Path(*parts).with_suffix(".txt")
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(f"{draw.integers(0, 3)} 0.5 0.5 0.{draw.integers(2, 8)} 0.4\n")
    (folder / "boxes.yaml").write_text(
        "path: boxes\ntrain: images/train\nval: images/val\nnames: {0: a, 1: b, 2: c}\n"
    )


def small_gpt(folder: Path) -> None:
    """The same tokenizer and model as `tokenizer`, with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer(folder)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


def texts(folder: Path) -> None:
    """Sentences in the two parts of a data set."""
    import json

    words(folder / "words.txt", 20_000)
    lines = (folder / "words.txt").read_text().splitlines()
    (folder / "words.txt").unlink()
    for part, chosen in (("train", lines[:1600]), ("test", lines[1600:1700])):
        rows = (json.dumps({"text": " ".join([line] * 4)}) for line in chosen)
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n")


def temperatures(folder: Path) -> None:
    """Two years of hourly values of a transformer station."""
    import datetime

    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    first = datetime.datetime(2016, 7, 1)
    rows = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    for hour, values in enumerate(draw.random((17_420, 7))):
        time = first + datetime.timedelta(hours=hour)
        rows.append(f"{time}," + ",".join(f"{value:.4f}" for value in values))
    (folder / "ETTh1.csv").write_text("\n".join(rows) + "\n")


def springs(folder: Path) -> None:
    """Paths and speeds of five particles that springs join, as they are simulated."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count, steps in (("train", 2560, 49), ("valid", 256, 49), ("test", 256, 100)):
        for name in ("loc", "vel"):
            values = draw.normal(size=(count, steps, 2, 5))
            np.save(folder / f"{name}_{part}_springs5.npy", values)
        np.save(folder / f"edges_{part}_springs5.npy", draw.integers(0, 2, (count, 5, 5)))


def small_pictures(path: Path) -> None:
    """A configuration of neural processes: MNIST, one epoch."""
    import json

    config = {
        "img_size": [1, 28, 28],
        "batch_size": 16,
        "r_dim": 128,
        "h_dim": 128,
        "z_dim": 128,
        "num_context_range": [3, 200],
        "num_extra_target_range": [0, 200],
        "lr": 4e-5,
        "epochs": 1,
        "dataset": "mnist",
    }
    path.write_text(json.dumps(config))


def mnist_archives(folder: Path) -> None:
    """The four archives of MNIST as they are downloaded."""
    import gzip

    mnist(folder)
    for file in sorted((folder / "MNIST" / "raw").iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))


def small_bert(folder: Path) -> None:
    """A small BERT with random weights and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    words(folder / "train.txt", 20_000)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    known = sorted(set((folder / "train.txt").read_text().split()))
    vocabulary = {word: number for number, word in enumerate((*special, *known))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{name}_token": text for name, text in names.items()}
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=512, **sizes)
    BertForMaskedLM(config).save_pretrained(folder)


def sentence_pairs(folder: Path) -> None:
    """Pairs of sentences and whether they mean the same, as tables."""
    words(folder / "words.txt", 12_000)
    lines = (folder / "words.txt").read_text().splitlines()[:-1]  # without commas
    (folder / "words.txt").unlink()
    draw = random.Random(0)
    for part, count in (("train", 640), ("validation", 64)):
        rows = ["sentence1,sentence2,label,idx"]
        for index in range(count):
            one, other = draw.choices(lines, k=2)
            rows.append(f"{one},{other},{draw.randint(0, 1)},{index}")
        (folder / f"{part}.csv").write_text("\n".join(rows) + "\n")


def accuracy(folder: Path) -> None:
    """The metric of that name in the form in which `evaluate` loads it from a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accuracy.py").write_text(
        "import datasets\nimport evaluate\n"
        "class Accuracy(evaluate.Metric):\n"
        "    def _info(self):\n"
        "        kind = datasets.Features(\n"
        "            predictions=datasets.Value('int32'), references=datasets.Value('int32'))\n"
        "        return evaluate.MetricInfo(\n"
        "            description='', citation='', inputs_description='', features=kind)\n"
        "    def _compute(self, predictions, references):\n"
        "        pairs = list(zip(predictions, references))\n"
        "        return {'accuracy': sum(int(a == b) for a, b in pairs) / len(pairs)}\n"
    )


def nanochat(folder: Path) -> None:
    """Documents in two shards, and a tokenizer that was trained on them by nanochat itself."""
    import os
    import subprocess
    import sys

    import pyarrow as pa
    import pyarrow.parquet as pq

    shards = folder / "base_data_climbmix"
    shards.mkdir(parents=True, exist_ok=True)
    words(folder / "words.txt", 200_000)
    lines = (folder / "words.txt").read_text().splitlines()
    (folder / "words.txt").unlink()
    texts = [" ".join(lines[first : first + 10]) for first in range(0, len(lines), 10)]
    for number, part in enumerate((texts[:-200], texts[-200:])):
        table = pa.table({"text": part})
        pq.write_table(table, shards / f"shard_{number:05d}.parquet", row_group_size=100)
    subprocess.run(
        [sys.executable, "-m", "scripts.tok_train", "--vocab-size", "1024"],
        cwd=folder.parent,
        env={**os.environ, "NANOCHAT_BASE_DIR": str(folder)},
        check=True,
        capture_output=True,
    )


Make = Callable[[Path], None]
