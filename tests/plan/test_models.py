import json
from pathlib import Path

import pytest

from boundby.model.errors import BoundbyError
from boundby.plan import models


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("llama-3.1-8b", 8.03, 7.5),
        ("llama-3.1-70b", 70.6, 69.5),
        ("mixtral-8x7b", 46.7, 12.75),
        ("deepseek-v3", 671, 36.6),
        ("qwen3-235b-a22b", 235, 21.6),
        ("gpt-oss-120b", 116.8, 5.1),
    ],
)
def test_parameters_of_published_models(name: str, billions: float, active: float) -> None:
    """Active weights leave out the input embedding, which no token multiplies."""
    config = models.find(name)
    assert config.params / 1e9 == pytest.approx(billions, rel=0.005)
    assert config.active_params / 1e9 == pytest.approx(active, rel=0.01)


def test_a_config_json_gives_the_same_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "hidden_act": "silu",
                "tie_word_embeddings": False,
            }
        )
    )
    assert models.find(str(file)).params == models.MODELS["llama-3.1-8b"].params


def test_latent_attention_and_experts_are_read() -> None:
    raw = {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129280,
    }
    assert models.from_mapping(raw).params == pytest.approx(671e9, rel=0.005)


def test_a_window_shortens_what_queries_see() -> None:
    config = models.find("gemma-3-12b")
    assert config.scored_keys(32768) < 0.25 * models.find("llama-3.1-8b").scored_keys(32768)


def test_an_encoder_is_not_causal() -> None:
    raw = {
        "model_type": "bert",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "hidden_act": "gelu",
    }
    config = models.from_mapping(raw)
    assert not config.causal
    assert not config.gated


@pytest.mark.parametrize("text", ["[]", "{}", "not json"])
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(BoundbyError):
        models.find(str(file))


def test_an_unknown_name_lists_the_table() -> None:
    with pytest.raises(BoundbyError, match="mixtral"):
        models.find("llama-9")
