"""Trainer and generate of transformers, with tiny models and random weights."""

from pathlib import Path

import pytest

from tests.scripts import SHORT, run

pytest.importorskip("torch")
pytest.importorskip("transformers")

MODEL = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
config = GPT2Config(vocab_size=64, n_positions=128, n_embd=16, n_layer=2, n_head=2)
config.eos_token_id = None
model = GPT2LMHeadModel(config)
"""


def test_steps_of_a_transformers_trainer_are_found(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    source = f"""
{MODEL}
from transformers import Trainer, TrainingArguments
rows = [{{"input_ids": torch.arange(12), "labels": torch.arange(12)}} for _ in range(256)]
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=4, max_steps=40,
    gradient_accumulation_steps=2, report_to=[], use_cpu=True, disable_tqdm=True)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
    done = run(tmp_path, source)
    assert done.code == 0, done.err
    assert done.step["kind"] == "train 4x12"
    assert "Traceback" not in done.err


def test_decode_steps_of_generate_are_found(tmp_path: Path) -> None:
    source = f"""
{MODEL}
model.eval()
for length in (20, 30):
    model.generate(torch.ones(1, length, dtype=torch.long), max_new_tokens=30, do_sample=False,
        pad_token_id=0)
"""
    done = run(tmp_path, source, options=(*SHORT[2:], "--warmup", "6"))
    assert done.code == 0, done.err
    assert done.step["kind"] == "forward 1x1"
    assert [other["kind"] for other in done.step["others"]] == ["forward 1x20"]
