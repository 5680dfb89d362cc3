"""Where boundby itself fails inside a script, the script does not notice."""

import re
from pathlib import Path

import pytest

from tests.scripts import SHORT, TRAINING, environment, run

pytest.importorskip("torch")

# A function of boundby that raises from its `after`-th call on.
BREAK = """
def break_down(owner, name, after):
    plain, calls = getattr(owner, name), []
    def broken(*args, **kwargs):
        calls.append(1)
        if len(calls) >= after:
            raise IndexError("not there")
        return plain(*args, **kwargs)
    setattr(owner, name, broken)
from boundby.capture.torch import hooks
from boundby.capture.torch import recorder
from boundby.capture.process import step_finder as steps
from boundby.capture.torch import profiler as torch_profiler
from boundby.capture.process import windows
"""
LOOP = """
print(sum(train().item() == 0 for _ in range(40)), "steps were nothing")
import sys
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("broken", "after", "steps", "clean"),
    [
        ("windows.Windows, '_measure_clean'", 2, 5, 1),
        ("windows.Windows, '_close_clean'", 1, 6, 0),
        ("torch_profiler.TorchProfiler, 'start'", 1, 7, 3),
        ("steps.StepFinder, 'called'", 3, 2, 0),
    ],
)
def test_failing_hook_stops_observation_and_keeps_the_measured_steps(
    tmp_path: Path, broken: str, after: int, steps: int, clean: int
) -> None:
    source = f"{BREAK}break_down({broken}, {after})\n{TRAINING}{LOOP}"
    options = ("--warmup", "2", "--steps", "3", "--profiled", "1", "--out", "kept")
    done = run(tmp_path, source, options=options)
    assert (done.code, done.out) == (3, "0 steps were nothing\n"), done.err
    line = f"observation failed after {steps} steps and was stopped: IndexError: not there"
    kept = tmp_path / "kept" / "failure.txt"
    assert f"boundby: {line} (in full: {kept})\n" in done.err
    assert "Traceback" not in done.err
    assert "in broken" in kept.read_text() and "hooks.py" in kept.read_text()
    assert line in done.warnings
    assert len(done.diagnosis["step"]["samples_ns"]) == (clean or 1)  # type: ignore[index]
    assert ("no clean step" in done.warnings) == (clean == 0)


@pytest.mark.parametrize("broken", ["hooks.Hooks, 'install'", "recorder.Recorder, '__init__'"])
def test_failure_on_importing_torch_stops_observation(tmp_path: Path, broken: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    source = f"{BREAK}break_down({broken}, 1)\n{TRAINING}{LOOP}"
    done = run(tmp_path, source, env=environment(TMPDIR=str(temporary)), own_process=True)
    assert (done.code, done.out) == (3, "0 steps were nothing\n"), done.err
    (kept,) = temporary.glob("boundby-*/failure.txt")
    line = "observation failed after 0 steps and was stopped: IndexError: not there"
    assert done.err == f"boundby: {line} (in full: {kept})\n"
    assert done.diagnosis is None


def test_failure_of_the_diagnosis_is_one_line(tmp_path: Path) -> None:
    """After enough steps the script is ended, whether or not the diagnosis fails."""
    source = f"{BREAK}break_down(recorder.Recorder, 'capture', 1)\n{TRAINING}{LOOP}"
    done = run(tmp_path, source)
    assert (done.code, done.out) == (0, "")
    assert len(re.findall("IndexError", done.err)) == 1
    assert done.diagnosis is None


def test_error_of_the_script_precedes_the_failed_diagnosis(tmp_path: Path) -> None:
    """The script's traceback comes first, then boundby's failure."""
    source = f"{BREAK}break_down(recorder.Recorder, 'capture', 1)\n{TRAINING}train()\n1 / 0"
    done = run(tmp_path, source)
    assert done.code == 1
    told = "ZeroDivisionError: division by zero\nboundby: the result cannot be shown"
    assert told in done.err


def test_exit_code_of_a_failed_script_is_kept_if_the_diagnosis_fails(tmp_path: Path) -> None:
    broken = "import boundby.capture.live_run as live\nlive.observe = lambda *_, **__: 1 / 0\n"
    done = run(tmp_path, f"{broken}{TRAINING}train(); train()\nraise SystemExit('a message')")
    assert done.code == 1
    told = "a message\nboundby: the result cannot be shown: ZeroDivisionError"
    assert told in done.err


def test_failed_rank_ends_with_the_others(tmp_path: Path) -> None:
    source = f"""
{BREAK}
break_down(windows.Windows, '_measure_clean', 2)
{TRAINING}
for step in range(40):
    print(step)
    train()
"""
    env = environment(RANK="0", WORLD_SIZE="2")
    done = run(tmp_path, source, options=("--steps", "3", "--profiled", "1"), env=env)
    whole = run(tmp_path, source.replace("\nbreak_down(windows", "\n#"), env=env,
                options=("--steps", "3", "--profiled", "1"))  # fmt: skip
    assert (done.code, whole.code) == (0, 0), done.err
    assert done.out == whole.out and done.out.count("\n") < 40
    assert "observation failed after 11 steps" in done.warnings


def test_script_that_catches_the_end_still_reports_the_failure(tmp_path: Path) -> None:
    source = f"""
from boundby import diagnosis
def broken(*args, **kwargs): raise IndexError("not there")
diagnosis.diagnose = broken
{TRAINING}
for _ in range(40):
    try: train()
    except SystemExit: print("no")
print("over")
"""
    done = run(tmp_path, source, options=SHORT)
    assert (done.code, done.out) == (0, "no\nover\n"), done.err
    assert "the script caught the exception" in done.err
    assert "IndexError: not there" in done.err and "Traceback" not in done.err
