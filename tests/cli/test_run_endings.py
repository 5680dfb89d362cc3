"""Every ending of a script keeps its exit code and output, and the capture is reported."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boundby.capture.own_files import is_own_file
from tests.fork_server import HANG_S
from tests.scripts import SHORT, TRAINING, command, environment, run, write

pytest.importorskip("torch")

LOOP = TRAINING + "for _ in range(50): train()\n"


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('gone wrong')", 1, "gone wrong\n"),
        ("sys.exit()", 0, ""),
    ],
)
def test_exit_code_of_script_is_kept(tmp_path: Path, ending: str, code: int, message: str) -> None:
    done = run(tmp_path, f"import sys\n{LOOP}{ending}", options=(*SHORT, "--continue", "--quiet"))
    assert (done.code, done.err) == (code, message)
    assert done.step["kind"] == "train 4x8"


def test_script_that_exits_at_once_is_diagnosed(tmp_path: Path) -> None:
    """`os._exit` runs no handler and unwinds nothing; forked processes use it too."""
    source = (
        "import atexit, os\n"
        f"{LOOP}"
        "atexit.register(print, 'not run')\n"
        "if not (child := os.fork()): os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print('end', flush=True)\n"
        "os._exit(3)\n"
    )
    done = run(tmp_path, source, options=(*SHORT, "--continue"))
    assert (done.code, done.out) == (3, "end\n")
    assert done.err.count("Step train 4x8") == 1


def test_script_that_exits_at_once_without_steps_is_explained(tmp_path: Path) -> None:
    done = run(tmp_path, "import os\nos._exit(0)\n")
    assert done.code == 0
    assert "no step was found" in done.err


def test_failing_script_shows_its_traceback_and_the_diagnosis(tmp_path: Path) -> None:
    """The failure is inside a module's forward, so that our frames would be in between."""
    source = f"""
{TRAINING}
class Fails(torch.nn.Module):
    def forward(self, x):
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
for _ in range(3): train()
Fails()(1)
"""
    done = run(tmp_path, source, options=("--profiled", "1"))
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.code, plain.returncode) == (1, 1)
    assert done.err.startswith(plain.stderr)
    files = re.findall(r'File "(.+?)"', done.err)
    assert files and not any(is_own_file(file) for file in files)
    assert done.step["kind"] == "train 4x8"
    assert "the script failed during its warm-up, after 3 steps" in done.warnings
    # It did not end for lack of steps, so no options are advised.
    assert "steps are needed" not in done.warnings
    assert "no clean step was measured" in done.warnings
    assert "on average: the work varies" not in done.warnings


def test_report_does_not_go_into_a_log_of_the_script(tmp_path: Path) -> None:
    """Programs put files in place of the standard streams, which need not be whole files."""
    source = f"""
import sys
class Log:
    def __init__(self, stream):
        self.file, self.stream = open("log.txt", "a"), stream
    def write(self, text):
        self.file.write(text)
        self.stream.write(text)
sys.stdout, sys.stderr = Log(sys.stdout), Log(sys.stderr)
{LOOP}
print("trained")
raise ValueError("bad batch")
"""
    done = run(tmp_path, source, options=(*SHORT, "--continue"))
    assert done.code == 120  # as Python alone, for a stream that cannot be flushed
    assert done.out == "trained\n"
    assert "Step train 4x8:" in done.err and "ValueError: bad batch" in done.err
    log = (tmp_path / "log.txt").read_text()
    assert log.startswith("trained\nTraceback") and "Step train" not in log


def test_report_starts_on_a_new_line_after_a_progress_bar(tmp_path: Path) -> None:
    source = f"import sys\n{TRAINING}for _ in range(50): sys.stderr.write('|') and train()\n"
    done = run(tmp_path, source)
    assert done.code == 0
    assert "|\nBound by: unknown" in done.err


def test_failure_before_any_step_keeps_the_scripts_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "import torch\nraise SystemExit(7)")
    assert done.code == 7
    assert "boundby: the script ended with exit code 7 before a step was found" in done.err
    assert "boundby looks for" not in done.err
    # A script that ran longer may have had steps that were not recognised.
    called = "import torch\ntorch.nn.Linear(2, 2)(torch.ones(2, 2))\nraise SystemExit(7)"
    done = run(tmp_path, called)
    assert done.code == 7
    assert "no step was found" in done.err
    assert done.err.strip().endswith("the script ended with exit code 7 before a step was found")


def test_excepthook_of_script_is_used(tmp_path: Path) -> None:
    source = "import sys, torch\nsys.excepthook = lambda *error: print('hooked', error[1])\n1 / 0"
    done = run(tmp_path, source)
    assert done.code == 1
    assert done.out == "hooked division by zero\n"
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("steps", "window"), [(4, "clean steps"), (6, "host-timing steps"), (9, "profiled steps")]
)
def test_script_that_ends_too_early_is_explained(tmp_path: Path, steps: int, window: str) -> None:
    options = ("--warmup", "2", "--steps", "3", "--profiled", "3")
    done = run(tmp_path, f"{TRAINING}for _ in range({steps}): train()", options=options)
    assert done.code == 0
    assert f"the script ended during its {window}" in done.warnings
    # A profile that was cut short is still one.
    assert (done.step["dilation"] is not None) == (window == "profiled steps")


@pytest.mark.parametrize("steps", [7, 8])
def test_script_that_ends_at_profiler_start_is_diagnosed(tmp_path: Path, steps: int) -> None:
    """The first profiled step is the profiler's own start: after it, no step was whole."""
    source = f"{TRAINING}for _ in range({steps}): train()\nmodel(torch.ones(4, 8))\n"
    done = run(tmp_path, source, options=("--warmup", "2", "--steps", "3", "--profiled", "3"))
    assert done.diagnosis is not None
    assert (done.code, done.diagnosis["verdict"]["bound_by"]) == (0, "unknown")
    assert "\nBound by: unknown. No step was profiled." in done.err
    assert done.step["dilation"] is None
    assert not done.diagnosis["findings"]
    assert "no complete step was profiled: --warmup 2 --steps 2 --profiled 1" in done.warnings or (
        steps == 7 and "at least 8 steps are needed" in done.warnings
    )


def test_profile_of_other_kinds_of_step_is_not_used(tmp_path: Path) -> None:
    """Only another kind of step was profiled: it says nothing about the main kind."""
    source = f"""
{TRAINING}
for _ in range(8): train()
for _ in range(3):
    model(torch.ones(1, 8)).mean().backward()
    optimizer.step()
"""
    done = run(tmp_path, source, options=("--warmup", "2", "--steps", "3", "--profiled", "3"))
    assert done.diagnosis is not None
    assert done.step["kind"] == "train 4x8"
    assert done.diagnosis["verdict"]["bound_by"] == "unknown"
    assert "no complete step was profiled" in done.warnings


def test_profile_interrupted_by_another_profiler_is_cut_before_it(tmp_path: Path) -> None:
    """The script's own profiler ends boundby's in the middle of the second profiled step."""
    source = f"""
{TRAINING}
for _ in range(8): train()
with torch.profiler.profile():
    for _ in range(6): train()
"""
    done = run(tmp_path, source, options=("--warmup", "2", "--steps", "3", "--profiled", "3"))
    assert done.diagnosis is not None
    assert "started its own profiler" in done.warnings
    assert done.diagnosis["verdict"]["bound_by"] == "unknown"


def test_interrupted_run_shows_its_diagnosis(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import time
for _ in range(4): train()
print("on", flush=True)
time.sleep(600)
"""
    write(tmp_path, source)
    running = subprocess.Popen(
        [sys.executable, "-m", *command(tmp_path, *SHORT), "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "on\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=HANG_S)
    assert running.returncode == 130
    assert "Step train 4x8:" in err
    assert "the script was interrupted during its clean steps, after 4 steps" in " ".join(
        err.split()
    )
    assert "Traceback" not in err


def test_script_that_catches_the_end_continues_with_a_message(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
for number in range(50):
    try:
        train()
    except:
        print("caught at", number)
print("its own end")
"""
    done = run(tmp_path, source)
    assert done.code == 0
    assert done.out.endswith("its own end\n")
    assert done.out.count("caught") == 1
    assert done.err.count("it continues unobserved") == 1
    assert done.err.count("Step train 4x8:") == 1


def test_unwritable_stderr_does_not_break_the_script(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import os
os.mkdir("x.json")
for _ in range(30):
    try: train()
    except SystemExit: pass
print("its own end")
"""
    done = run(tmp_path, source, options=(*SHORT, "--json", "x.json"))
    assert (done.code, done.out) == (0, "its own end\n")
    assert "boundby: cannot write" in done.err


def test_diagnosis_is_shown_if_it_cannot_be_saved(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import os
os.mkdir("x.json")
for _ in range(30): train()
"""
    done = run(tmp_path, source, options=(*SHORT, "--json", "x.json"))
    assert done.code == 2
    assert "Step train 4x8:" in done.err
    assert "cannot write" in done.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--json", "train.py/x.json"), "train.py is not a folder"),
        (("--html", "."), "it is a folder"),
        (("--out", "train.py"), "it is not a folder"),
        (("--machine", "train.py"), "train.py"),
    ],
)
def test_unusable_output_file_is_reported_before_the_script_starts(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run(tmp_path, "print('has begun')", options=options)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.strip().splitlines()
    assert words in line


def test_output_path_is_relative_to_the_start_directory(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import os
os.mkdir("elsewhere"); os.chdir("elsewhere")
for _ in range(30): train()
"""
    run(tmp_path, source, options=(*SHORT, "--json", "x.json"))
    assert (tmp_path / "x.json").exists()


def test_atexit_handlers_of_the_script_run(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
import atexit
atexit.register(lambda: print("at exit", __name__))
try:
    for _ in range(50): train()
finally:
    torch.save(model.state_dict(), "checkpoint.pt")
    print("saved")
"""
    done = run(tmp_path, source)
    assert (done.code, done.out) == (0, "saved\nat exit __main__\n")
    assert (tmp_path / "checkpoint.pt").exists()


def test_failure_at_exit_is_reported(tmp_path: Path) -> None:
    source = TRAINING + "try:\n    for _ in range(50): train()\nfinally: undefined\n"
    done = run(tmp_path, source)
    assert done.code == 1
    assert "NameError" in done.err
    assert "raised this while boundby ended it" in done.err
    assert done.step["kind"] == "train 4x8"


def test_running_threads_are_named(tmp_path: Path) -> None:
    source = f"""
import threading, time, torch
threading.Thread(target=time.sleep, args=(14,), name="beat").start()
{LOOP}
"""
    began = time.monotonic()
    done = run(tmp_path, source)
    assert done.code == 0
    assert "of the script are still running (beat): they are ended in 30 s" in done.err
    assert time.monotonic() - began > 14


def test_script_that_trains_on_a_thread_ends_without_a_traceback(tmp_path: Path) -> None:
    source = f"""
import threading
{TRAINING}
def work():
    for _ in range(50): train()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("its own end")
"""
    done = run(tmp_path, source)
    assert (done.code, done.out) == (0, "its own end\n")
    assert "Traceback" not in done.err
    assert done.step["kind"] == "train 4x8"


@pytest.mark.parametrize("requests", [60, 4])
def test_a_service_that_calls_its_model_in_a_thread_is_observed_and_goes_on(
    tmp_path: Path, requests: int
) -> None:
    source = f"""
import queue, threading, torch
model = torch.nn.Linear(8, 8).eval()
waiting, answers = queue.Queue(), queue.Queue()
def serve():
    while True:
        with torch.no_grad():
            answers.put(model(waiting.get()))
threading.Thread(target=serve, daemon=True).start()
for _ in range({requests}):
    waiting.put(torch.ones(4, 8))
    answers.get()
print("served")
"""
    done = run(tmp_path, source)
    assert done.out == "served\n"
    assert "Traceback" not in done.err and "ERROR" not in done.err
    if requests == 60:
        assert done.code == 0
        assert done.step["kind"] == "forward 4x8"
        assert "does not end it" in done.err


@pytest.mark.parametrize("step_by", ["auto", "optimizer"])
def test_missing_steps_are_explained(tmp_path: Path, step_by: str) -> None:
    options = (*SHORT, "--step-by", step_by)
    done = run(tmp_path, "import torch\ntorch.nn.Linear(2, 2)(torch.ones(2, 2))", options=options)
    assert done.code == 2
    assert "no step was found" in done.err
    assert "1 calls" in done.err
    assert "boundby.step()" in done.err
    assert "--step-by forward" in done.err


def test_script_without_torch_is_explained(tmp_path: Path) -> None:
    done = run(tmp_path, "print('fine')", own_process=True)
    assert (done.code, done.out) == (2, "fine\n")
    assert "without importing torch" in done.err


@pytest.mark.parametrize(
    ("before", "said"),
    [(0, "a profiler was running already"), (8, "started its own profiler")],
)
def test_profiler_of_script_keeps_working(tmp_path: Path, before: int, said: str) -> None:
    """A profiler around all steps, started while boundby's is running."""
    source = f"""
{TRAINING}
for _ in range({before}): train()
with torch.profiler.profile() as profile:
    for _ in range(12): train()
print(sum(event.count for event in profile.key_averages() if "Optimizer.step" in event.key))
"""
    options = ("--warmup", "2", "--steps", "3", "--profiled", "4", "--continue")
    done = run(tmp_path, source, options=options)
    assert (done.code, done.out) == (0, "12\n")
    assert said in done.warnings
    assert len(done.step["samples_ns"]) == 3


def test_profiler_of_script_in_clean_steps_is_reported(tmp_path: Path) -> None:
    source = f"""
{TRAINING}
for _ in range(3): train()
with torch.profiler.profile():
    train()
for _ in range(20): train()
"""
    done = run(tmp_path, source, options=("--warmup", "2", "--steps", "4", "--profiled", "1"))
    assert done.code == 0
    assert "the script's own profiler was running in clean steps" in done.warnings
