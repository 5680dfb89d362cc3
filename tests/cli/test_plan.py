import json
import subprocess
import sys
from pathlib import Path

import pytest

from boundby.cli import boundby as group
from boundby.model.errors import BoundbyError
from tests.scripts import boundby


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return boundby("plan", *arguments)


def test_only_json_of_a_plan_is_written_to_stdout() -> None:
    done = run("llama-3.1-8b", "--on", "h100", "--mesh", "fsdp=8", "--json", "-")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["chips"] == 8
    assert "bound by" in done.stderr


def test_single_operator_is_planned() -> None:
    done = run("matmul", "8192x8192x8192", "--on", "v5e")
    assert "critical batch: 241 rows" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs a model"),
        (("llama-3.1-8b",), "--on h100"),
        (("matmul", "8x8", "--on", "v5e"), "MxKxN"),
        (("llama-3.1-8b", "--on", "h100", "--mesh", "row=2"), "AXIS=N"),
        (("llama-3.1-8b", "--on", "h100", "--precision", "fp7"), "no precision"),
        (("--explain", "all-gathers"), "did you mean"),
        (("llama-3.1-8b", "--on", "h100", "--sweep", "chips=0..4"), "write chips=8..4096"),
        (("llama-3.1-8b", "--on", "h100", "--micro-batch", "-3"), "more than 0 sequences"),
        (("gpt2", "--on", "h100", "--seq", "100000000"), "tokens does not fit"),
        (("llama-3.1-405b", "--on", "v5e", "--chips", "16"), "chips would"),
        (("llama-3.1-8b", "--on", "h100", "--batch", "4M"), "write 4M-tokens"),
        (("llama-3.1-8b", "--on", "h100", "--batch", "2k"), "write 2k-tokens, or 2048 for seq"),
        (("llama-3.1-8b", "--on", "v4-32"), "no chip is called v4-32: nearest are TPU v4"),
        (("lama-3.1-8b", "--on", "h100"), "did you mean llama-3.1-8b"),
        (("llama-3.1-8b", "--on", "h100", "--mesh", "tensor=8,tp=2"), "tensor twice"),
        (("llama-3.1-8b", "--on", "h100", "--mesh", "context=16", "--seq", "8"), "context=8, or"),
        (
            ("llama-3.1-8b", "--on", "h100", "--serve", "--micro-batch", "8"),
            "--micro-batch has no meaning",
        ),
        (
            ("llama-3.1-8b", "--on", "h100", "--search", "--mesh", "tensor=8"),
            "--mesh has no meaning",
        ),
        (("llama-3.1-8b", "--on", "h100", "--in", "8"), "--in has no meaning without --serve"),
        (("llama-3.1-405b", "--on", "h100", "--chips", "8", "--serve"), "16 chips, or"),
        (("matmul", "--on", "v5e"), "matmul needs a shape"),
        (("llama-3.1-8b", "--on", "h100", "--recompute", "half"), "recompute is none"),
        (("llama-3.1-8b", "--on", "h100", "--precision", "int4"), "as --weights of a served model"),
        (("llama-3.1-8b", "--on", "h100", "--mesh", "interleave=4"), "pipeline=2 or more would"),
        (
            ("llama-3.1-8b", "--on", "h100", "--mesh", "pipeline=8,interleave=8"),
            "interleave=4 would",
        ),
        (("mixtral-8x7b", "--on", "h100", "--mesh", "expert=3,fsdp=3"), "expert=2 would"),
        (("mixtral-8x7b", "--on", "h100", "--mesh", "expert=8,fsdp=12"), "a multiple of 8 chips"),
        (
            ("llama-3.1-8b", "--on", "h100", "--mesh", "context=8", "--seq", "4097"),
            "a multiple of 8 tokens, would",
        ),
        (("llama-3.1-8b", "--table", "t.csv"), "MODEL has no meaning with --table"),
        (
            ("llama-3.1-8b", "--on", "h100", "--mesh", "fsdp=8", "--batch", "10"),
            "over 8 replicas: 8 or 16 would",
        ),
        (
            (
                *("llama-3.1-8b", "--on", "h100", "--mesh", "fsdp=8"),
                "--batch",
                "16",
                "--micro-batch",
                "3",
            ),
            "does not divide the 2 sequences of each replica: 2 would",
        ),
    ],
)
def test_usage_errors_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(BoundbyError, match=message):
        group.main(["plan", *arguments], standalone_mode=False)


def test_plan_terms_are_explained() -> None:
    assert "V (n-1)/n" in run("--explain", "all-gather").stdout


def test_table_that_is_no_text_is_a_one_line_error(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(b"\x7fELF\xd0")
    with pytest.raises(BoundbyError, match="no table in CSV format"):
        group.main(["plan", "--table", str(file)], standalone_mode=False)


def test_a_service_has_a_price_per_output_token() -> None:
    done = run("llama-3.1-8b", "--on", "h100", "--serve", "--batch", "8", "--price", "2.5")
    assert "USD per million output tokens" in done.stdout


def test_a_plan_imports_neither_torch_nor_jax() -> None:
    code = (
        "import sys; import boundby; boundby.plan('llama-3.1-8b', 'h100', 'fsdp=8');"
        "boundby.plan('llama-3.1-8b', 'h100', chips_count=16, batch=64);"
        "assert not {'torch', 'jax'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    arguments = ["llama-3.1-8b", "--on", "h100", "--mesh", "fsdp=8", "--html", str(page), "--quiet"]
    group.main(["plan", *arguments], standalone_mode=False)
    assert "roofline of one chip" in page.read_text()


def test_hugging_face_model_names_are_accepted() -> None:
    done = run("meta-llama/Llama-3.1-8B-Instruct", "--on", "h100", "--mesh", "fsdp=8")
    assert done.stdout.startswith("llama-3.1-8b")


def test_substituted_precision_of_chip_is_noted() -> None:
    done = run("llama-3.1-8b", "--on", "a100", "--mesh", "fsdp=8", "--precision", "fp8")
    assert "has no unit for fp8: its products run in bfloat16" in " ".join(done.stdout.split())
    done = run("llama-3.1-8b", "--on", "v5e", "--mesh", "fsdp=1024")
    assert "1024 chips are 4 pods of 256" in " ".join(done.stdout.split())
