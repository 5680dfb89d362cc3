"""boundby lab from the outside: the list, one experiment, the files it writes, its errors."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil

from boundby.lab import EXPERIMENTS
from boundby.model.lab import LabReport
from tests.fork_server import HANG_S
from tests.scripts import boundby


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "boundby", "lab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str) -> tuple[int, str, str]:
    done = boundby("lab", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_list_names_every_experiment_and_its_claim() -> None:
    code, out, _ = run("--list")
    assert code == 0
    for experiment in EXPERIMENTS:
        assert experiment.name in out
    assert "Data Movement Is All You Need" in " ".join(out.split())


def test_wrong_name_or_path_is_a_one_line_error(tmp_path: Path) -> None:
    for arguments, words in (
        (("fussion",), "no such experiment: fussion"),
        (("fusion", "--html", str(tmp_path)), "cannot write"),
        (("python", "--device", "tpu"), "no such device"),
    ):
        code, out, err = run(*arguments)
        assert code == 2
        assert not out
        (line,) = err.strip().splitlines()
        assert words in line


def test_experiment_is_written_as_json_and_page(tmp_path: Path) -> None:
    target, html = tmp_path / "lab.json", tmp_path / "lab.html"
    code, out, _ = run(
        "python", "--quick", "--device", "cpu", "--json", str(target), "--html", str(html)
    )
    assert code == 0
    report = msgspec.json.decode(target.read_bytes(), type=LabReport)
    (result,) = report.results
    assert result.name == "python"
    plain = msgspec.json.decode(target.read_bytes())["results"][0]
    assert {"predicted", "measured", "held", "why"} <= set(plain)
    assert result.title in " ".join(out.split())
    assert html.read_text().startswith("<!doctype html>")


def test_interrupt_keeps_finished_results(tmp_path: Path) -> None:
    target = tmp_path / "lab.json"
    names = [each.name for each in EXPERIMENTS if each.name != "compilers"]
    process = start(*names, "--quick", "--device", "cpu", "--json", str(target))
    while not _busy_children(process.pid):
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "are done and kept" in err.strip().splitlines()[-1]
    report = msgspec.json.decode(target.read_bytes(), type=LabReport)
    assert report.interrupted
    assert len(report.results) < len(names)


def _busy_children(pid: int) -> bool:
    return any(_is_worker(child) for child in psutil.Process(pid).children())


def _is_worker(process: psutil.Process) -> bool:
    """Whether this is a running process of an experiment."""
    try:
        return "boundby.lab.worker" in " ".join(process.cmdline())
    except psutil.Error:
        return False
