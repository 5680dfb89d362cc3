import json
import subprocess
from pathlib import Path

import click
import msgspec
import pytest

from boundby.cli.trace import parse_time
from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from tests.machines import round_machine
from tests.scripts import boundby

SYNCS = Path(__file__).parents[1] / "data" / "h200" / "bad_mlp_syncs.json.gz"


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return boundby("trace", *arguments)


def test_verdict_is_the_first_line() -> None:
    done = trace("--wall", "14.6ms", str(SYNCS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("Overhead-bound. With zero overhead ")


def test_json_goes_to_stdout_with_a_machine_from_a_file(tmp_path: Path) -> None:
    saved = tmp_path / "machine.json"
    store.write(round_machine(), saved)
    done = trace("--json", "-", "--machine", str(saved), str(SYNCS))
    diagnosis = msgspec.json.decode(done.stdout, type=Diagnosis)
    assert diagnosis.machine == round_machine()


def test_machine_may_be_the_name_of_a_chip() -> None:
    done = trace("--json", "-", "--machine", "mi300x", str(SYNCS))
    assert msgspec.json.decode(done.stdout, type=Diagnosis).machine.chip == "MI300X"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere.json",), "nowhere.json: no such file"),
        (("--wall", "fast", str(SYNCS)), "'fast' is not a time"),
        (("--index", "9", str(SYNCS)), "no step 9: the trace has 2"),
        (("--machine", "nowhere.json", str(SYNCS)), "cannot read nowhere.json"),
        (("--machine", "h1000", str(SYNCS)), "no chip is called h1000"),
        ((), "Missing argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = trace(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert complaint in line


def test_common_spellings_of_times_are_accepted() -> None:
    assert parse_time("84.2ms") == pytest.approx(84.2e6)
    assert parse_time("1.3 s") == pytest.approx(1.3e9)
    assert parse_time("900us") == pytest.approx(900e3)
    for wrong in ("84", "ms", "-3ms", "0s", "1e3ms"):
        with pytest.raises(click.BadParameter):
            parse_time(wrong)


def test_model_option_without_decode_steps_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config.write_text(json.dumps({"model_type": "llama", **sizes, "vocab_size": 100}))
    done = trace("--json", "-", "--model", str(config), str(SYNCS))
    diagnosis = msgspec.json.decode(done.stdout, type=Diagnosis)
    assert diagnosis.decode_limit is None
    assert "model-not-used" in {note.code for note in diagnosis.notes}
