"""Patches against real scripts: they apply, parse, and say what they could not place."""

import ast
import subprocess
from pathlib import Path

import pytest

from boundby.prove.patch import Known, make_patch

EXAMPLES = Path(__file__).parents[2] / "examples"
GPT = Known(modules=["CharGPT"], device="cuda")


def applied(path: Path, tmp_path: Path, diff: str) -> str:
    copy = tmp_path / path.name
    copy.write_text(path.read_text())
    subprocess.run(["patch", "-p1"], input=diff, text=True, cwd=tmp_path, check=True)
    text = copy.read_text()
    ast.parse(text)
    return text


def test_several_changes_to_one_script(tmp_path: Path) -> None:
    path = EXAMPLES / "char_gpt.py"
    names = ("fused", "tf32", "compile:reduce-overhead", "autocast", "sleeping-threads")
    patch = make_patch(path, [(name, f"do {name}") for name in names], GPT)
    assert patch.notes == ["sleeping-threads, by hand: do sleeping-threads"]
    text = applied(path, tmp_path, patch.text())
    assert "torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)" in text
    assert 'torch.set_float32_matmul_precision("high")\n' in text
    assert '    model = torch.compile(model, mode="reduce-overhead")\n    optimizer' in text
    wrapped = """        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad"""
    assert wrapped in text


def test_keywords_are_replaced_where_they_are_given(tmp_path: Path) -> None:
    path = EXAMPLES / "slow_mlp.py"
    patch = make_patch(path, [("fused", "")], Known(modules=["LoggedMLP"], device="cpu"))
    text = applied(path, tmp_path, patch.diff)
    assert "AdamW(model.parameters(), lr=args.lr, fused=True)" in text
    path = EXAMPLES / "image_classifier.py"
    patch = make_patch(path, [("workers", "")], Known(modules=["SmallResNet"], device="cuda"))
    text = applied(path, tmp_path, patch.diff)
    assert "        persistent_workers=True,\n        pin_memory=True,\n    )" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'torch.autocast("cpu", dtype=torch.bfloat16)',
            'torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)',
        ),
        # Where it runs on a GPU again, it is to be as it was.
        (
            "torch.autocast(device.type, torch.bfloat16)",
            'torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")',
        ),
        (
            "torch.amp.autocast(device_type=kind, enabled=wanted)",
            'torch.amp.autocast(device_type=kind, enabled=kind != "cpu")',
        ),
    ],
)
def test_autocast_is_switched_off_where_it_stands(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import torch\nwith {before}:\n    f()\n")
    patch = make_patch(path, [("no-autocast", "")], Known(modules=["Net"], device="cpu"))
    assert f"with {after}:" in applied(path, tmp_path, patch.diff)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\nfor x in data: step(x)\n", "compile"),
        ("import torch\nfor x in data: step(x)\n", "autocast"),
        ("import torch\nopt = torch.optim.SGD(m.parameters(), **options)\n", "fused"),
        ("from torch import nn\n", "tf32"),
        ("import torch\nopt = torch.optim.SGD(p for p in ps)\n", "fused"),
        ("import torch\nwith torch.autocast('cpu', torch.bfloat16, True): f()\n", "no-autocast"),
        ("import torch\nwith torch.cuda.amp.autocast(wanted): f()\n", "no-autocast"),
        ("import torch\nwith torch.autocast('cuda', torch.float16): f()\n", "no-autocast"),
        ("import torch\nwith accelerator.autocast(): f()\n", "no-autocast"),
        ("import torch\n", "unheard-of"),
    ],
)
def test_without_a_place_it_is_a_note(tmp_path: Path, source: str, name: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    patch = make_patch(path, [(name, "words")], Known(modules=["Net"], device="cpu"))
    assert patch.diff == ""
    assert patch.notes == [f"{name}, by hand: words"]
    assert path.read_text() == source


def test_a_model_from_a_function_is_found_by_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nnet = make()\nnet = net.cuda()\nopt = torch.optim.AdamW(net.parameters())\n"
    )
    patch = make_patch(path, [("compile", "")], Known(modules=["ResNet"], device="cuda"))
    assert "net = net.cuda()\n+net = torch.compile(net)\n" in patch.diff
