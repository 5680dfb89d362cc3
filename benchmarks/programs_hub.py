"""Stand-ins for what the public programs download: notebooks as scripts, tokenizers, data sets and
models of the hub.

Every function writes into one folder or file, with fixed seeds, so that two runs read the same.
"""

from __future__ import annotations

import importlib
import json
import random
import wave
from pathlib import Path

import numpy as np
from programs_data import accuracy, mnist, sentence_pairs, small_bert, words


def notebook(script: Path) -> None:
    """The code of the notebook beside it, without commands to the notebook itself."""
    cells = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for cell in code for line in cell.splitlines()]
    script.write_text("\n".join(line for line in lines if line.lstrip()[:1] not in ("%", "!")))


def bytes_tokenizer(script: Path) -> None:
    """A module in place of tiktoken, whose vocabularies are downloads: one token per byte."""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "class Encoding:\n"
        "    n_vocab, max_token_value, eot_token = 50257, 50256, 50256\n"
        "    def encode(self, text, **options):\n"
        "        return list(text.encode())\n"
        "    encode_ordinary = encode\n"
        "    def decode(self, tokens):\n"
        "        return bytes(token % 256 for token in tokens).decode('latin-1')\n"
        "def get_encoding(name):\n"
        "    return Encoding()\n"
    )


def short_text(path: Path) -> None:
    """A story of some thousand words."""
    words(path, 5_000)


def tokens_of_gpt2(path: Path) -> None:
    """16-bit tokens behind the head of 256 numbers that llm.c writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    head = np.zeros(256, np.int32)
    head[:3] = 20240520, 1, 40_000
    path.write_bytes(head.tobytes() + draw.integers(0, 50257, 40_000, dtype=np.uint16).tobytes())


def glue(folder: Path) -> None:
    """Pairs of sentences as a data set with configurations, a metric, and a small BERT beside."""
    pairs = folder / "nyu-mll" / "glue"
    pairs.mkdir(parents=True, exist_ok=True)
    sentence_pairs(pairs)
    (pairs / "test.csv").write_text((pairs / "validation.csv").read_text())
    parts = "".join(
        f"  - split: {part}\n    path: {part}.csv\n" for part in ("train", "validation", "test")
    )
    (pairs / "README.md").write_text(
        f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{parts}---\n"
    )
    accuracy(folder / "glue")
    (folder / "glue" / "accuracy.py").rename(folder / "glue" / "glue.py")
    small_bert(folder / "bert-base-cased")


def scored_pairs(folder: Path) -> None:
    """Pairs of sentences and how alike they are, and a small BERT beside."""
    data = folder / "sentence-transformers" / "stsb"
    data.mkdir(parents=True, exist_ok=True)
    words(data / "words.txt", 12_000)
    lines = (data / "words.txt").read_text().splitlines()[:-1]
    (data / "words.txt").unlink()
    draw = random.Random(0)
    for part, count in (("train", 800), ("validation", 96), ("test", 96)):
        rows = ["sentence1,sentence2,score"]
        for _ in range(count):
            one, other = draw.choices(lines, k=2)
            rows.append(f"{one},{other},{draw.random():.3f}")
        (data / f"{part}.csv").write_text("\n".join(rows) + "\n")
    small_bert(folder / "bert")


def some_text(path: Path) -> None:
    """A file in a folder that a program expects to exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("made\n")


def simcse(folder: Path) -> None:
    """Sentences of an encyclopedia, scored pairs in one archive, and a small BERT beside."""
    import gzip

    scored_pairs(folder)
    (folder / "bert").rename(folder / "distilbert-base-uncased")
    (folder / "data").mkdir()
    words(folder / "data" / "wiki1m_for_simcse.txt", 60_000)
    rows = ["split\tsentence1\tsentence2\tscore"]
    for part, split in (("validation", "dev"), ("test", "test")):
        table = folder / "sentence-transformers" / "stsb" / f"{part}.csv"
        rows += [
            f"{split}\t" + line.replace(",", "\t") for line in table.read_text().split("\n")[1:-1]
        ]
    with gzip.open(folder / "data" / "stsbenchmark.tsv.gz", "wt") as file:
        file.write("\n".join(rows) + "\n")


def fashion_mnist(folder: Path) -> None:
    """torchvision's FashionMNIST in the form of its download."""
    mnist(folder, tests=300)
    (folder / "MNIST").rename(folder / "FashionMNIST")


def speech(folder: Path) -> None:
    """A changing tone, a small Whisper with random weights, and a program in place of ffmpeg that
    cuts off the head of 44 bytes."""
    import sys

    import torch

    folder.mkdir()
    time = np.arange(20 * 16000) / 16000
    sound = (8000 * np.sin(2 * np.pi * (220 + 20 * np.sin(time)) * time)).astype(np.int16)
    with wave.open(str(folder / "tone.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(sound.tobytes())
    convert = folder / "ffmpeg"
    convert.write_text(f"#!/bin/sh\nexec tail -c +45 {folder.name}/tone.wav\n")
    convert.chmod(0o755)
    sys.path.insert(0, str(folder.parent))
    model = importlib.import_module("whisper.model")
    sizes = model.ModelDimensions(80, 1500, 128, 4, 2, 51865, 448, 128, 4, 2)
    torch.manual_seed(0)
    whole = model.Whisper(sizes)
    torch.nn.init.normal_(whole.decoder.positional_embedding, std=0.02)  # uninitialised memory
    state = whole.state_dict()
    torch.save({"dims": vars(sizes), "model_state_dict": state}, folder / "small.pt")
