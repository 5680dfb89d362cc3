import json
from pathlib import Path

import pytest

import boundby
from boundby.model.errors import BoundbyError
from boundby.plan import models
from boundby.plan.config_checked import CHECKED, UNREAD
from boundby.plan.config_json import from_mapping


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
def test_published_models_have_their_parameter_counts(
    name: str, billions: float, active: float
) -> None:
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
    assert from_mapping(raw).params == pytest.approx(671e9, rel=0.005)


def test_window_limits_attended_keys() -> None:
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
    config = from_mapping(raw)
    assert not config.causal
    assert not config.gated


@pytest.mark.parametrize("text", ["[]", "{}", "not json"])
def test_file_that_is_not_a_config_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(BoundbyError):
        models.find(str(file))


def test_an_unknown_name_lists_the_table() -> None:
    with pytest.raises(BoundbyError, match="mixtral"):
        models.find("no-such-model")
    with pytest.raises(BoundbyError, match=r"did you mean llama-2-7b\?"):
        models.find("llama-9")


LLAMA_4 = {
    "model_type": "llama4",
    "text_config": {
        "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "head_dim": 128,
        "num_key_value_heads": 8, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "vocab_size": 202048, "hidden_act": "silu",
    },
}  # fmt: skip
VISION = {
    "model_type": "vit", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096, "image_size": 224, "patch_size": 16, "hidden_act": "gelu",
}  # fmt: skip
DIFFUSION = {
    "_class_name": "DiTTransformer2DModel", "num_layers": 28, "num_attention_heads": 16,
    "attention_head_dim": 72, "patch_size": 2, "sample_size": 32, "in_channels": 4,
}  # fmt: skip
MPT = {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50368}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 3840, "num_hidden_layers": 48, "num_attention_heads": 16, "head_dim": 256,
        "num_key_value_heads": 8, "intermediate_size": 15360, "vocab_size": 262208,
        "sliding_window": 1024, "sliding_window_pattern": 6, "tie_word_embeddings": True,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "billions"),
    [(LLAMA_4, 107.8), (VISION, 0.302), (DIFFUSION, 0.669), (MPT, 6.65), (GEMMA_3, 11.8)],
)
def test_configs_of_many_kinds_have_their_parameters(
    raw: dict[str, object], billions: float
) -> None:
    assert from_mapping(raw).params / 1e9 == pytest.approx(billions, rel=0.01)


SMALL = {
    "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 32000,
    "intermediate_size": 4096,
}  # fmt: skip
# Read wrong before: widths under other names, experts, and decoders with an encoder's name.
DINOV2_GIANT = {
    "model_type": "dinov2", "hidden_size": 1536, "num_hidden_layers": 40, "mlp_ratio": 4,
    "num_attention_heads": 24, "use_swiglu_ffn": True, "image_size": 518, "patch_size": 14,
}  # fmt: skip
QWEN_7B = {
    "model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 22016, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
ERNIE_300B = {
    "model_type": "ernie4_5_moe", "hidden_size": 8192, "num_hidden_layers": 54,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "vocab_size": 103424, "hidden_act": "silu", "moe_num_experts": 64, "moe_k": 8,
    "moe_intermediate_size": 3584, "moe_layer_start_index": 3, "moe_num_shared_experts": 0,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "billions", "active", "causal"),
    [(DINOV2_GIANT, 1.136, 1.136, False), (QWEN_7B, 7.72, 7.1, True), (ERNIE_300B, 300, 47, True)],
)
def test_widths_experts_and_masks_of_kinds_with_other_names(
    raw: dict[str, object], billions: float, active: float, causal: bool
) -> None:
    config = from_mapping(raw)
    assert config.params / 1e9 == pytest.approx(billions, rel=0.01)
    assert config.active_params / 1e9 == pytest.approx(active, rel=0.01)
    assert config.causal == causal


@pytest.mark.parametrize(
    ("more", "causal"),
    [
        ({"model_type": "splinter"}, False),
        ({"model_type": "modernbert_decoder"}, True),
        ({"model_type": "new", "architectures": ["NewForMaskedLM"]}, False),
        ({"model_type": "bert", "architectures": ["BertForCausalLM"]}, True),
        ({"model_type": "new_vision", "vocab_size": None}, False),
    ],
)
def test_mask_follows_from_what_a_model_is_made_for(more: dict[str, object], causal: bool) -> None:
    assert from_mapping({**SMALL, **more}).causal == causal


def test_experts_without_the_number_per_token_are_refused() -> None:
    raw = {"model_type": "new", **SMALL, "num_experts": 8, "best_experts": 2}
    with pytest.raises(BoundbyError, match="num_experts_per_tok would"):
        from_mapping(raw)


def test_layers_without_experts_are_counted_by_their_types() -> None:
    raw = {"model_type": "new", **SMALL, "num_experts": 8, "num_experts_per_tok": 2}
    assert from_mapping({**raw, "mlp_layer_types": ["dense", *["sparse"] * 3]}).moe_layers == 3
    assert from_mapping({**raw, "mlp_only_layers": [0, 1]}).moe_layers == 2


def test_image_encoders_attend_to_all_patches() -> None:
    vision, diffusion = from_mapping(VISION), from_mapping(DIFFUSION)
    assert (vision.tokens, diffusion.tokens) == (197, 256)
    assert not vision.causal
    assert not diffusion.causal
    assert diffusion.modulation == 6
    assert not vision.gated


def test_windows_are_read_by_their_pattern() -> None:
    gemma = from_mapping(GEMMA_3)
    assert (gemma.window, gemma.windowed) == (1024, 5 / 6)
    assert gemma.gated


SD_3 = {
    "_class_name": "SD3Transformer2DModel", "num_layers": 24, "num_attention_heads": 24,
    "attention_head_dim": 64, "patch_size": 2, "sample_size": 128,
}  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "num_layers": 19, "num_single_layers": 38,
    "num_attention_heads": 24, "attention_head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(("raw", "billions"), [(SD_3, 2.03), (FLUX, 11.9)])
def test_two_streams_have_weights_for_images_and_for_text(
    raw: dict[str, object], billions: float
) -> None:
    """Stable Diffusion 3 medium and FLUX.1, as published; a token passes one stream."""
    config = from_mapping(raw)
    assert config.params / 1e9 == pytest.approx(billions, rel=0.01)
    assert config.active_params < 0.6 * config.params
    assert "text" in config.notes[0]


@pytest.mark.parametrize(
    "raw",
    [
        {"_class_name": "PixArtTransformer2DModel", "num_layers": 28, "num_attention_heads": 16,
         "attention_head_dim": 72, "cross_attention_dim": 1152},
        {**SD_3, "dual_attention_layers": [0, 1]},
        {"_class_name": "AutoencoderKL"},
    ],
)  # fmt: skip
def test_other_models_of_diffusers_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(BoundbyError, match=r"no costs for: DiTTransformer2DModel, .* would"):
        from_mapping(raw)


def test_a_kind_not_compared_with_a_real_model_is_planned_with_a_note() -> None:
    assert "not compared with a real model" in from_mapping({"model_type": "new", **SMALL}).notes[0]
    assert from_mapping({"model_type": "llama", **SMALL}).notes == ()


def test_the_text_model_of_a_larger_one_is_noted() -> None:
    assert from_mapping(GEMMA_3).notes == ("its text model alone is planned",)


def test_what_a_plan_leaves_out_is_noted() -> None:
    raw = {"model_type": "llama", **SMALL, "index_topk": 2048, "num_nextn_predict_layers": 1}
    assert from_mapping(raw).notes == (
        "attention to selected keys is planned as attention to all",
        "its layers that predict further tokens are left out",
    )
    assert from_mapping({**raw, "index_topk": None, "num_nextn_predict_layers": 0}).notes == ()


def test_a_kind_whose_config_does_not_show_its_layers_is_refused() -> None:
    with pytest.raises(BoundbyError, match="the sizes of its config do not describe"):
        from_mapping({"model_type": "doge", **SMALL})


def test_no_kind_is_both_checked_and_refused() -> None:
    assert not CHECKED & UNREAD


PARAMS_JSON = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
    "multiple_of": 1024, "ffn_dim_multiplier": 1.3,
}  # fmt: skip
NANOGPT = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "vocab_size": 50257}
VIT_BASE = {
    **VISION, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "num_channels": 3,
}  # fmt: skip
OPT_125M = {
    "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "vocab_size": 50272, "activation_function": "relu",
    "max_position_embeddings": 2048,
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "billions"),
    [(PARAMS_JSON, 8.03), (NANOGPT, 0.1244), (VIT_BASE, 0.0858), (OPT_125M, 0.1252)],
)
def test_sizes_under_other_names_are_read(raw: dict[str, object], billions: float) -> None:
    """Llama's params.json, nanoGPT; positions and patches count where they have weights."""
    assert from_mapping(raw).params / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_model_of_vectors_or_classes_has_no_head() -> None:
    bert = {"model_type": "bert", **SMALL, "num_hidden_layers": 24}
    words = from_mapping({**bert, "architectures": ["BertForMaskedLM"]})
    classes = from_mapping({**bert, "architectures": ["BertForSequenceClassification"]})
    assert words.params == classes.params
    assert words.active_params - classes.active_params == 32000 * 1024
    assert from_mapping({**SMALL, "model_type": "clip_text_model"}).vocab_params == 32000 * 1024


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"block_configs": [{"ffn": {"ffn_mult": 1.3}}]}, "layers of different widths"),
        ({"attn_type_list": [0, 0, 0, 1]}, "linear attention"),
        ({"num_hidden_layers": None}, "has no num_hidden_layers: .* would"),
    ],
)
def test_layers_that_differ_are_refused(more: dict[str, object], what: str) -> None:
    with pytest.raises(BoundbyError, match=what):
        from_mapping({"model_type": "new", **SMALL, **more})


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"load_in_8bit": True}, "int8"),
        (None, None),
    ],
)
def test_type_of_published_weights_is_read(stated: object, dtype: str | None) -> None:
    raw = {"model_type": "llama", **SMALL, "quantization_config": stated}
    assert from_mapping(raw).stored == dtype


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3.1-8b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_published_names_are_found(name: str, found: str) -> None:
    assert models.find(name).name == found


def test_heads_that_do_not_divide_the_hidden_size_need_a_width() -> None:
    odd = {"model_type": "llama", **SMALL, "num_attention_heads": 7}
    with pytest.raises(BoundbyError, match="a head_dim would"):
        from_mapping(odd)
    assert from_mapping({**odd, "head_dim": 128}).head_dim == 128


def test_sequences_are_no_longer_than_the_positions_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "bert", **SMALL, "max_position_embeddings": 512}))
    plan = boundby.plan(str(file), "h100", "fsdp=8", batch=64)
    assert plan.tokens == 64 * 512
    longer = boundby.plan(str(file), "h100", "fsdp=8", batch=64, sequence=4096)
    assert any("longer than the 512 positions" in note for note in longer.notes)


@pytest.mark.parametrize(
    "raw",
    [
        {"num_hidden_layers": [2, 2, 18, 2], "hidden_size": 96, "num_attention_heads": 3},
        {"num_hidden_layers": "many", "hidden_size": 96, "num_attention_heads": 3},
        {"num_hidden_layers": 0, "hidden_size": 96, "num_attention_heads": 3},
        {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3, "kv_lora_rank": 4},
    ],
)
def test_unreadable_config_is_a_one_line_error(raw: dict[str, object]) -> None:
    with pytest.raises(BoundbyError, match="the config of model has"):
        from_mapping(raw)


@pytest.mark.parametrize(
    ("name", "sequence", "per_token"),
    [
        # 6 x (8.03 - 0.525 of the embedding) billion, and 12 x 32 layers x 4096 x 4096.5 / 2 keys
        ("llama-3.1-8b", 8192, 6 * 7.505e9 + 12 * 32 * 4096 * 4096.5),
        # 36.6 billion active; 61 layers, 128 heads of (192 + 128) / 2
        ("deepseek-v3", 4096, 6 * 36.6e9 + 12 * 61 * 128 * 160 * 2048.5),
        ("mixtral-8x7b", 4096, 6 * 12.75e9 + 12 * 32 * 4096 * 2048.5),
        # no triangle: every token sees all 512
        ("bert-large", 512, 6 * 0.3332e9 + 12 * 24 * 1024 * 512),
    ],
)
def test_flops_of_a_token_match_hand_arithmetic(name: str, sequence: int, per_token: float) -> None:
    config = models.find(name)
    assert config.train_flops_per_token(sequence) == pytest.approx(per_token, rel=0.002)


def test_an_image_model_is_planned_on_its_own_tokens(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(VISION))
    plan = boundby.plan(str(file), "h100", "fsdp=8", batch=1024)
    assert plan.tokens == 1024 * 197
