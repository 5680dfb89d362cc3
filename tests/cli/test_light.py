"""The command line answers at once: nothing heavy is loaded before a verb needs it."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "jax", "rich", "msgspec", "psutil")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import boundby",
        "from click.testing import CliRunner; from boundby.cli import boundby as b; "
        "assert CliRunner().invoke(b, ['--help']).exit_code == 0",
    ],
)
def test_light_commands_import_nothing_heavy(statement: str) -> None:
    assert not loaded_after(statement) & set(HEAVY)


def test_commands_that_run_scripts_do_not_import_frameworks() -> None:
    loaded = loaded_after("import boundby.capture.process.script, boundby.cli.run")
    assert not loaded & {"torch", "numpy", "jax", "rich"}


def test_reading_a_trace_imports_no_other_format_and_no_probe() -> None:
    loaded = loaded_after("import boundby.session.traces, boundby.cli.trace, boundby.cli.console")
    unneeded = {
        "boundby.capture.torch.graph_replays",
        "boundby.capture.xplane.trace",
        "boundby.hardware.worker",
        "boundby.report.page",
        "multiprocessing",
        "rich.progress",
    }
    assert not loaded & unneeded


def test_every_public_name_exists() -> None:
    import boundby

    for name in boundby.__all__:
        assert getattr(boundby, name) is not None
    with pytest.raises(AttributeError):
        _ = boundby.nonsense
