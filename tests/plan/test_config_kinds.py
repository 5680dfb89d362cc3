"""Configs of published models by kind, against their printed number of parameters.

`published_configs.json` has the sizes of each config.json, without what plan does not read.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from boundby.model.errors import BoundbyError
from boundby.plan.config_json import from_mapping

CASES = json.loads(Path(__file__).with_name("published_configs.json").read_text("utf-8"))


def _named(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in CASES[kind]]


@pytest.mark.parametrize("case", _named("published"))
def test_a_published_config_has_its_parameters(case: dict[str, Any]) -> None:
    """Norms, biases and position tables, which plan leaves out, are below 3%."""
    config = from_mapping(case["config"], case["name"])
    assert config.params / 1e9 == pytest.approx(case["billions"], rel=0.03)


@pytest.mark.parametrize("case", _named("text_models"))
def test_text_part_of_a_multimodal_model_is_planned(case: dict[str, Any]) -> None:
    config = from_mapping(case["config"], case["name"])
    assert config.params / 1e9 == pytest.approx(case["billions"], rel=0.01)
    assert config.causal


@pytest.mark.parametrize("case", _named("refused"))
def test_unsupported_architecture_is_a_one_line_error(case: dict[str, Any]) -> None:
    with pytest.raises(BoundbyError, match=case["reason"]) as raised:
        from_mapping(case["config"], case["name"])
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("would")


def test_windows_of_some_layers_are_read() -> None:
    """Gemma 3: five of six; Llama 4: three of four; ModernBERT: two of three; Mistral: all."""
    by_name = {case["name"]: case["config"] for kind in CASES for case in CASES[kind]}
    shares = {
        name: from_mapping(by_name[name]).windowed
        for name in ("gemma-3-4b", "llama-4-scout", "modernbert-base", "mistral-7b", "gpt-oss-20b")
    }
    assert list(shares.values()) == pytest.approx([5 / 6, 3 / 4, 2 / 3, 1, 1 / 2])
