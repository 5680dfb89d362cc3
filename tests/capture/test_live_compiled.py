"""Compiled models stay compiled: the same graphs, frames and numbers, and their steps are found."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_python
from tests.scripts import environment

pytest.importorskip("torch")

FORMS = (
    "module",
    "module_in_place",
    "blocks",
    "blocks_in_place",
    "forward_method",
    "module_with_hooks",
    "function",
    "decorator",
    "function_in_module",
    "given_up_function",
    "optimizer_step",
    "optimizer_in_function",
    "scheduled_optimizer_step",
    "whole_step",
)
REPOSITORY = Path(__file__).parents[2]


def counted(mode: str) -> dict[str, Any]:
    done = run_python(
        ["-m", "tests.capture.compiled_forms", mode], cwd=REPOSITORY, env=environment()
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return counted("plain")


@pytest.fixture(scope="module")
def watched() -> dict[str, Any]:
    return counted("watched")


@pytest.mark.parametrize("form", FORMS)
def test_steps_are_found_without_changing_results(
    form: str, plain: dict[str, Any], watched: dict[str, Any]
) -> None:
    without, with_us = plain[form], watched[form]
    kinds = with_us.pop("kinds")
    without.pop("kinds")
    assert with_us == without
    assert without["graphs"] > 0
    assert kinds == ["train 4x8"] * 8


def test_every_compiled_form_is_tested(plain: dict[str, Any]) -> None:
    assert tuple(plain) == FORMS
