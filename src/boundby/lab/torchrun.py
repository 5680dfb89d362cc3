"""Two ranks under torchrun that an experiment sends requests to.

The parent writes requests as files in a folder and rank 0 answers with files beside them, so that a
prediction can be made between two answers while the ranks keep running.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.lab import Interval

_PATIENCE_S = 90.0  # time limit
# Long enough for a product at its usual rate, as the law assumes.
_PROBE_DEPTH = {"cpu": 2048, "cuda": 4096}
_SHAPE = {"cpu": (512, 1024), "cuda": (4096, 8192)}  # rows, columns
_ROUNDS = 7  # for a median


class Request(msgspec.Struct):
    """One product per rank (B x depth times depth x F) for each depth, and the transfer of the
    sums."""

    depths: list[int]
    rows: int
    columns: int
    rounds: int


class Answer(msgspec.Struct):
    """Times in ns by depth: of one rank's product, and of the transfer."""

    math: list[list[float]]
    comms: list[list[float]]


class Ranks:
    """Two ranks that run until they have measured, or until this object is deleted."""

    def __init__(self, *, cuda: bool, quick: bool) -> None:
        import torch

        gpus = torch.cuda.device_count() if cuda else 0
        self.kind = "cuda" if gpus >= 2 else "cpu"
        self.dtype = "bfloat16" if self.kind == "cuda" else "float32"
        self.itemsize = 2 if self.kind == "cuda" else 4
        # A GPU's saved machine does not include the CPU that the ranks use.
        self.probes_products = cuda and self.kind == "cpu"
        self.rows, self.columns = _SHAPE[self.kind]
        self.words = "two ranks on GPUs, over NCCL"
        if self.kind == "cpu":
            self.words = "two ranks on the CPU, over gloo"
            self.words += ": this machine has one GPU only" if cuda else ""
        self._rounds = 3 if quick else _ROUNDS
        self._folder = tempfile.TemporaryDirectory(prefix="boundby-")
        self._log = Path(self._folder.name) / "log"
        self._asked = 0
        self._process = self._start()

    def probe(self) -> tuple[Interval, Interval]:
        """Bytes per second of the link, FLOP/s of one rank."""
        depth = _PROBE_DEPTH[self.kind]
        math, comms = self._ask([depth], 3 * self._rounds)
        moved = self.itemsize * self.rows * self.columns
        flops = 2.0 * self.rows * self.columns * (depth // 2)
        return comms[0].inverse(1e9 * moved), math[0].inverse(1e9 * flops)

    def measure(self, depths: list[int]) -> tuple[list[Interval], list[Interval]]:
        """Times of math and of communication by depth; the ranks end."""
        try:
            return self._ask(depths, self._rounds)
        finally:
            self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "2", "-m", __name__]
        command += [self._folder.name, self.kind, str(os.getpid())]
        threads = max(1, (os.cpu_count() or 2) // 2)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if sys.platform == "linux":
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _ask(self, depths: list[int], rounds: int) -> tuple[list[Interval], list[Interval]]:
        request = Request(depths=depths, rows=self.rows, columns=self.columns, rounds=rounds)
        folder = Path(self._folder.name)
        request_file, answer_file = (
            folder / f"{name}.{self._asked}" for name in ("request", "answer")
        )
        self._asked += 1
        _write(request_file, request)
        deadline = time.monotonic() + _PATIENCE_S
        while not answer_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                raise BoundbyError(
                    f"the two ranks failed: {self._error_reason()}", exit_code=CANNOT_MEASURE
                )
            time.sleep(0.02)
        answer = msgspec.json.decode(answer_file.read_bytes(), type=Answer)
        return [_interval(s) for s in answer.math], [_interval(s) for s in answer.comms]

    def _error_reason(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        errors = [line.strip() for line in lines if "Error" in line]
        return (errors or lines or [f"no answer within {_PATIENCE_S:.0f} s"])[-1]

    def _stop(self) -> None:
        if self._process.poll() is None:
            (Path(self._folder.name) / "end").touch()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()

    def __del__(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()


def _interval(samples: list[float]) -> Interval:
    low, value, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Interval(low=low, value=value, high=high)


def _write(path: Path, content: Request | Answer) -> None:
    """Write atomically: the other side waits for the file."""
    draft = path.with_suffix(".draft" + path.suffix)
    draft.write_bytes(msgspec.json.encode(content))
    draft.replace(path)


def main() -> None:
    """The program of each rank."""
    import torch
    from torch import distributed

    folder, kind, asker = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rank = int(os.environ["RANK"])
    if kind == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    number = 0
    while True:
        message = [_next_request(folder, number, asker) if rank == 0 else None]
        distributed.broadcast_object_list(message, src=0)
        if message[0] is None:
            break
        answer = _answer(torch, distributed, kind, rank, message[0])
        if rank == 0:
            _write(folder / f"answer.{number}", answer)
        number += 1
    distributed.destroy_process_group()


def _next_request(folder: Path, number: int, asker: int) -> Request | None:
    """The next request; None if there is none, or if the parent has ended."""
    request_file = folder / f"request.{number}"
    while not request_file.exists():
        if (folder / "end").exists() or not psutil.pid_exists(asker):
            return None
        time.sleep(0.02)
    return msgspec.json.decode(request_file.read_bytes(), type=Request)


def _answer(torch: Any, distributed: Any, kind: str, rank: int, request: Request) -> Answer:
    """Both ranks multiply at once, then rank 1 sends its partial sums and rank 0 adds them."""
    device = f"cuda:{rank}" if kind == "cuda" else "cpu"
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    sums = torch.empty(request.rows, request.columns, dtype=dtype, device=device)
    arrived = torch.empty_like(sums)
    answer = Answer(math=[], comms=[])

    def finish() -> int:
        if kind == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    for depth in request.depths:
        half = max(1, depth // 2)
        left = torch.randn(request.rows, half, dtype=dtype, device=device)
        right = torch.randn(half, request.columns, dtype=dtype, device=device)
        math: list[float] = []
        comms: list[float] = []
        for _ in range(request.rounds + 1):
            distributed.barrier()
            began = finish()
            torch.mm(left, right, out=sums)
            multiplied = finish()
            distributed.barrier()
            ready = finish()
            if rank == 0:
                distributed.recv(arrived, src=1)
                finished = finish()
                sums.add_(arrived)
            else:
                distributed.send(sums, dst=0)
                finished = finish()
            math.append(multiplied - began)
            comms.append(finished - ready)
        answer.math.append(math[1:])
        answer.comms.append(comms[1:])
    return answer


if __name__ == "__main__":
    main()
