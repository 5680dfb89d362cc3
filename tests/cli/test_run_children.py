"""A script that trains in processes it has started: observed there, or named for the next run."""

import json
import sys
from pathlib import Path

import pytest

from tests.scripts import run, write

pytest.importorskip("torch.distributed")

MODEL = """
    import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
    def train(wrap=lambda model: model):
        model = wrap(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).mean().backward()
            optimizer.step()
        print("trained to the end", flush=True)
"""
RANKS = (
    MODEL
    + """
    def rank(number, folder):
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/rendezvous", rank=number, world_size=2
        )
        train(torch.nn.parallel.DistributedDataParallel)
    if __name__ == "__main__":
        mp.spawn(rank, args=(sys.argv[1],), nprocs=2)
        print("all is done")
"""
)
PROCESS = (
    MODEL
    + """
    def work(queue):
        train()
        queue.put("result")
    if __name__ == "__main__":
        context = mp.get_context(sys.argv[1])
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(queue.get(timeout=600))
        process.join()
        sys.exit(3)
"""
)
FEW = ("--warmup", "2", "--steps", "3", "--profiled", "1")


def test_spawned_ranks_are_observed(tmp_path: Path) -> None:
    done = run(tmp_path, RANKS, str(tmp_path), options=(*FEW, "--out", "kept"))
    assert (done.code, done.out) == (0, "all is done\n"), done.err
    assert "the steps run in ranks started by the script" in done.err
    assert done.err.count("Step train 4x8:") == 1
    assert done.step["kind"] == "train 4x8"
    for rank in range(2):
        folder = tmp_path / "kept" / f"rank{rank}"
        assert json.loads((folder / "diagnosis.json").read_text())["ops"]
        assert (folder / "trace.json").exists()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_that_others_wait_for_continues(tmp_path: Path, method: str) -> None:
    done = run(tmp_path, PROCESS, method, options=FEW)
    assert (done.code, done.out) == (3, "trained to the end\nresult\n"), done.err
    assert "run in a process started by the script; the script continues" in done.err
    assert done.step["kind"] == "train 4x8"
    assert done.diagnosis is not None and done.diagnosis["ops"]


def test_only_json_of_a_child_process_is_written_to_stdout(tmp_path: Path) -> None:
    done = run(tmp_path, PROCESS, "spawn", options=(*FEW, "--json", "-"))
    assert json.loads(done.out)["step"]["kind"] == "train 4x8"
    assert "trained to the end" in done.err


def test_script_started_by_another_is_named(tmp_path: Path) -> None:
    write(tmp_path, "import torch\nprint('trains')", name="inner.py")
    source = f"""
        import subprocess, torch
        subprocess.run([{sys.executable!r}, "-u", "inner.py", "--lr", "3e-4"], check=True)
        subprocess.run([{sys.executable!r}, "-c", "pass"], check=True)
        subprocess.run("true", shell=True, check=True)
    """
    done = run(tmp_path, source)
    assert (done.code, done.out) == (2, "trains\n")
    assert "no step was found" in done.err
    assert done.err.rstrip().endswith(
        "the script started others: if the steps run there, boundby run inner.py --lr 3e-4"
    )


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, 'inner.py', '--lr', '1'])",
        "subprocess.run(f'A=1 {sys.executable} -u inner.py --lr 1 && true', shell=True)",
        "os.system(f'{sys.executable} inner.py --lr 1')",
        "os.execl(sys.executable, sys.executable, 'inner.py', '--lr', '1')",
    ],
)
def test_launcher_without_torch_names_its_script(tmp_path: Path, start: str) -> None:
    (tmp_path / "inner.py").write_text("print('trains')")
    done = run(tmp_path, f"import os, subprocess, sys\n{start}")
    assert "trains" in done.out
    assert done.err.rstrip().endswith("if the steps run there, boundby run inner.py --lr 1")
