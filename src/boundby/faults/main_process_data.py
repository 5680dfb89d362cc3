"""Batches are tokenised, decoded or augmented by the process that trains.

What it looks for
    Functions of tokenizers, image, audio and table libraries that run in the step outside of a
    DataLoader's workers, by the line that calls them. What a DataLoader without workers does is
    `waiting-for-data`.

Why it costs time
    One Python thread prepares the batch and issues the operators: the model waits meanwhile. The
    same texts and images are prepared again in every epoch.

What to change
    Tokenise once before the loop, with a fast tokenizer (`AutoTokenizer.from_pretrained(...,
    use_fast=True)`), and keep the ids. Decode and augment in a `Dataset` with `DataLoader(...,
    num_workers=4, persistent_workers=True)`, or augment whole batches with torch operators.

When it does not help
    When each batch is made from the model's last output, or the machine has one core.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

from boundby.faults.fault import Detection, Fault
from boundby.fixes.loaders import most_workers
from boundby.model.assumptions.program_savings import PREPARED_BATCH_WORST, READY_BATCH_LEFT
from boundby.step.frames import costly_lines, file_loads, file_writes, frames_named, times_by_line
from boundby.step.model import StepView
from boundby.step.rows import without_rows

_TEXT = re.compile(
    r"(?:^|/)(?:tokenizers|transformers/(?:tokenization|models/\w+/tokenization)\w*|sentencepiece"
    r"|tiktoken|spacy|nltk/tokenize|sacremoses|torchtext)(?:/|\.py)"
    r"|\b(?:encode|encode_batch) of (?:builtins\.)?\w*(?:Tokenizer|Encoding|CoreBPE)"
)
_SAMPLES = re.compile(
    r"(?:^|/)(?:PIL|torchvision/(?:transforms|io)|cv2|albumentations|imgaug|skimage|kornia"
    r"|torchaudio|librosa|soundfile|audiomentations|av|decord|h5py|zarr|lmdb|pandas|pyarrow"
    r"|datasets|numpy/random|scipy/(?:ndimage|signal))/"
    r"|(?:^|/)json/__init__\.py\(\d+\): loads?$|(?:^|/)json/decoder\.py"
    r"|(?:^|/)(?:csv|gzip|zipfile|pickle|base64)\.py\("
    r"|<built-in (?:function|method) (?:imread|imdecode|resize|cvtColor|warpAffine|loads)\b"
)
_EVERY = re.compile(f"{_TEXT.pattern}|{_SAMPLES.pattern}")
_MOST_LINES = 4  # display limit
_USUAL_WORKERS = 4  # proposed where the number of cores is unknown


def detect(step: StepView) -> Detection | None:
    # Archives are written with the same libraries as they are read.
    rows = frames_named(step, _EVERY) & ~step.inside(file_writes(step) | file_loads(step))
    times = times_by_line(step, rows)
    lines = costly_lines(step, times)
    if not lines:
        return None
    texts = sum(times_by_line(step, frames_named(step, _TEXT)).values())
    is_text = texts > 0.5 * sum(times.values())
    inside = step.inside(rows)
    return Detection(
        low=without_rows(step, inside, PREPARED_BATCH_WORST.value),
        expected=without_rows(step, inside, READY_BATCH_LEFT.value),
        high=without_rows(step, inside),
        where=lines[:_MOST_LINES],
        change="ids = tokenizer(texts)  # once, before the loop, with a fast tokenizer"
        if is_text
        else f"DataLoader(dataset, num_workers={_workers(step)}, persistent_workers=True)",
        assumes="batches can be prepared before they are needed",
    )


def _workers(step: StepView) -> int:
    cores = step.host_counters.cores
    return min(most_workers(cores), _USUAL_WORKERS) if cores else _USUAL_WORKERS


FAULT = Fault(
    id="main-process-data",
    title="Batches are prepared by the process that trains",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    excludes=("python-in-step", "waiting-for-data"),
)
