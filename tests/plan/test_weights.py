import json
from pathlib import Path
from typing import Any

import pytest

from boundby.model.weights import ModelWeights
from boundby.plan.weights import model_weights

DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}
# q and o 64 x 64, k and v 64 x 32; gate, up and down 64 x 128.
LAYER = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
HEAD = 64 * 1000


def weights(tmp_path: Path, **more: Any) -> ModelWeights:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**DENSE, **more}))
    return model_weights(path)


@pytest.mark.parametrize("tied", [False, True])
def test_a_dense_model_reads_all_but_the_input_embedding(tmp_path: Path, tied: bool) -> None:
    read = weights(tmp_path, tie_word_embeddings=tied, torch_dtype="bfloat16")
    assert read.read_bytes(1, read.dtype_bytes) == 2 * (3 * LAYER + HEAD)
    assert read.read_bytes(1000, read.dtype_bytes) == read.read_bytes(1, read.dtype_bytes)


def test_mixture_reads_experts_reached_by_the_batch(tmp_path: Path) -> None:
    mixture = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    read = weights(tmp_path, **mixture)
    expert = 3 * 64 * 128
    assert read.expert_params == 3 * 8 * expert
    assert read.experts_reached(1) == 2
    assert read.experts_reached(2) == pytest.approx(8 * (1 - 0.75**2))
    one, many = read.read_bytes(1, 2), read.read_bytes(10_000, 2)
    assert many - one == pytest.approx(2 * 3 * 6 * expert)


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "gptq", "bits": 3}, 3),
        ({"load_in_4bit": True}, 4),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 8),
    ],
)
def test_quantized_layers_have_a_head_in_16_bits(
    tmp_path: Path, quantization: dict[str, Any], bits: int
) -> None:
    read = weights(tmp_path, quantization_config=quantization)
    assert read.read_bytes(1, 2) == 3 * LAYER * bits / 8 + 2 * HEAD


def test_an_unknown_quantization_is_taken_as_none(tmp_path: Path) -> None:
    assert weights(tmp_path, quantization_config={"quant_method": "new"}).layer_bytes is None
