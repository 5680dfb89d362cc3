"""Experiments in their own process: real ones, kept small, on this machine's CPU."""

from pathlib import Path

import msgspec
import pytest

from boundby import hardware as roofs
from boundby.lab import worker
from boundby.lab.session import Session, choose
from boundby.model import Machine
from boundby.model.errors import BoundbyError
from boundby.model.lab import LabReport

QUICK = ["intensity", "matmul", "python", "overlap"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return roofs.obtain("cpu", quick=True)


def run(machine: Machine, *names: str) -> LabReport:
    session = Session(machine, "cpu", choose(names), quick=True)
    progress: list[float] = []
    session.run(lambda _, part: progress.append(part))
    assert progress == sorted(progress)
    assert progress[-1] == pytest.approx(1.0)
    return session.report()


def test_experiments_predict_measure_and_conclude(machine: Machine) -> None:
    report = run(machine, *QUICK)
    assert [result.name for result in report.results] == QUICK
    for result in report.results:
        assert result.outcome in ("held", "not held"), result.why
        assert result.why
        assert result.plots
        assert set(result.predicted) <= set(result.measured)
        for name, found in result.measured.items():
            assert found.low <= found.value <= found.high or name == "position"
    assert msgspec.json.decode(msgspec.json.encode(report), type=LabReport) == report


def test_experiments_with_two_ranks_measure_both(machine: Machine) -> None:
    (result,) = run(machine, "shard").results
    assert result.outcome in ("held", "not held"), result.why
    assert result.measured["link"].value > 0
    assert result.notes[0] == "two ranks on the CPU, over gloo"


def test_failure_of_one_experiment_does_not_affect_others(machine: Machine) -> None:
    """Without the cost of an eager operator nothing can be said about running ahead."""
    broken = msgspec.structs.replace(
        machine, overheads=msgspec.structs.replace(machine.overheads, eager_op_ns=None)
    )
    failed, fine = run(broken, "ahead", "precision").results
    assert failed.outcome == "failed"
    assert failed.why == "the saved machine has no eager_op_ns: boundby machine --remeasure"
    assert fine.outcome in ("held", "not held")


def test_a_process_that_dies_is_reported_and_the_rest_continues(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A torch that ends the process at the product of the first experiment."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "def watch():\n"
        "    while 'boundby.lab.matmul' not in sys.modules: time.sleep(0.01)\n"
        "    import boundby.lab.python as python\n"
        "    python.EXPERIMENT.measure.__globals__['_host'] = lambda *_: os._exit(9)\n"
        "if 'boundby.lab.worker' in ' '.join(sys.orig_argv):\n"
        "    threading.Thread(target=watch, daemon=True).start()\n"
    )
    path = f"{tmp_path}:{_pythonpath()}"
    monkeypatch.setenv("PYTHONPATH", path)
    first, second = run(machine, "python", "intensity").results
    assert first.outcome == "failed"
    assert first.why == "its process failed: exit code 9"
    assert first.predicted
    assert second.outcome in ("held", "not held")


def _pythonpath() -> str:
    import os

    import boundby

    source = str(Path(boundby.__file__).parents[1])
    return f"{source}:{os.environ.get('PYTHONPATH', '')}"


def test_unknown_experiment_is_a_one_line_error() -> None:
    with pytest.raises(BoundbyError, match=r"no such experiment: fussion .known: fusion, "):
        choose(["fussion"])


def test_no_process_remains_when_the_reader_stops(machine: Machine) -> None:
    request = worker.Request(machine=machine, device="cpu", names=["python"], quick=True)
    said = worker.messages(request)
    assert isinstance(next(said), worker.Began)
    said.close()  # type: ignore[attr-defined]
