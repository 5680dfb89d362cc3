"""Programs in alternation: each in its own process, one running while the others wait.

A host's speed may double within seconds (see `boundby.model.host_speed`): processes timed one
after the other differ by that. Here all processes are prepared and warm, and each times a few steps
while the rest are blocked on a pipe; the order of each round is random. A disturbance of a round
affects all that it compares.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from boundby.model.host_speed import addition_ns

WARMUP = 6
# Of one turn: long enough for a few steps, short beside the seconds in which a host changes.
TURN_S = 0.15
FEWEST_STEPS, MOST_STEPS = 3, 200
_READY_S, _ANSWER_S = 240.0, 60.0
# Where a started process, not a forked one, finds its line.
LINE = "BOUNDBY_TURNS_LINE"


class Turn(NamedTuple):
    """The median step of one turn, and one addition in Python just before and after it."""

    step_ns: float
    pace_ns: float


class DroppedError(Exception):
    """A process is dropped; the message says why."""

    @property
    def crowded(self) -> bool:
        """Whether there was no memory for it beside the others."""
        words = str(self).lower().replace(" ", "").replace("_", "")
        return "outofmemory" in words or "allocfailed" in words


class Program:
    """A step in its process: warmed up, timed in turns, profiled at the end."""

    def __init__(self, step: Callable[[], object], *, cuda: bool, turn_s: float = TURN_S) -> None:
        self._step, self._cuda = step, cuda
        for _ in range(WARMUP):
            step()
        self._wait()
        began = time.monotonic()
        step()
        self._wait()
        steps = math.ceil(turn_s / max(time.monotonic() - began, 1e-9))
        self._steps = min(MOST_STEPS, max(FEWEST_STEPS, steps))
        self._rest()

    def turn(self) -> Turn:
        before = addition_ns()
        # After waiting, caches are cold and the queue is empty: the first step is not timed.
        for _ in range((2 if self._cuda else 1) + self._steps // 10):
            self._step()
        times = self._on_device() if self._cuda else self._on_host()
        self._rest()
        return Turn(statistics.median(times), (before + addition_ns()) / 2)

    def busy_ns(self) -> float | None:
        """Device time of one step; measured last: a profiler slows its process for good."""
        if not self._cuda:
            return None
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(2):
                self._step()
            self._wait()
        total_us = sum(event.self_device_time_total for event in profiler.key_averages())
        return float(total_us * 1e3 / 2)

    def _on_device(self) -> list[float]:
        import torch

        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self._steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self._step()
            mark.record()
        self._wait()
        return [a.elapsed_time(b) * 1e6 for a, b in itertools.pairwise(marks)]

    def _on_host(self) -> list[float]:
        marks = [time.perf_counter_ns()]
        for _ in range(self._steps):
            self._step()
            marks.append(time.perf_counter_ns())
        return [float(b - a) for a, b in itertools.pairwise(marks)]

    def _wait(self) -> None:
        if self._cuda:
            import torch

            torch.cuda.synchronize()

    def _rest(self) -> None:
        """Before waiting, release the memory that only a running step needs."""
        if self._cuda:
            import torch

            torch.cuda.empty_cache()


def serve(make: Callable[[], Any], line: Connection | None = None) -> None:
    """In the process: make the program, then answer requests until the pipe is closed."""
    line = line or Connection(int(os.environ[LINE]))
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            program = make()
            line.send((True, None))
            while True:
                line.send((True, getattr(program, line.recv())()))
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001  a program that fails is dropped with its message
            traceback.print_exc(file=sys.stderr)
            words = str(error).strip().splitlines()
            line.send((False, f"{type(error).__name__}: {words[0] if words else ''}"))


class Player:
    """The controlling side: one process, until it ends or is ended."""

    def __init__(self, line: Connection, end: Callable[[], None]) -> None:
        self.line, self.end = line, end

    @classmethod
    def forked(cls, make: Callable[[], Any], others: Iterable[Player] = ()) -> Player:
        """Forked from this process, which may have imported torch but never used the device."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [ours, *(other.line for other in others)]

        def live() -> None:
            # If they stayed open here too, the pipes would not close with the controlling process.
            for line in inherited:
                line.close()
            serve(make, theirs)

        process = context.Process(target=live)
        process.start()
        theirs.close()

        def end() -> None:
            process.kill()
            process.join()

        return cls(ours, end)

    @classmethod
    def started(
        cls, command: Sequence[str], environment: Mapping[str, str] = os.environ, **options: Any
    ) -> Player:
        """A command whose program calls `serve`, or answers as `serve` does."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env={**environment, LINE: str(theirs.fileno())},
                **options,
            )

        def end() -> None:
            process.kill()
            process.wait()

        return cls(Connection(ours.detach()), end)

    def ready(self, patience_s: float = _READY_S) -> None:
        self._hear(patience_s)

    def ask(self, what: str, patience_s: float = _ANSWER_S) -> Any:
        try:
            self.line.send(what)
        except OSError:
            raise DroppedError("its process died") from None
        return self._hear(patience_s)

    def _hear(self, patience_s: float) -> Any:
        if not self.line.poll(patience_s):
            raise DroppedError(f"no answer in {patience_s:.0f} s")
        try:
            fine, answer = self.line.recv()
        except (EOFError, OSError):
            raise DroppedError("its process died") from None
        if not fine:
            raise DroppedError(answer)
        return answer


class Turns:
    """Processes by name, those that were dropped, and the rounds so far."""

    def __init__(self) -> None:
        self.players: dict[str, Player] = {}
        self.dropped: dict[str, DroppedError] = {}
        self.rounds: list[dict[str, Turn]] = []
        self._random = random.Random(0)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.players):
            self.leave(name)

    def seat(self, name: str, make: Callable[[], Any], *, patience_s: float = _READY_S) -> bool:
        """Start one in a fork of this process; whether it became ready."""
        return self.seat_all({name: make}, patience_s=patience_s) == [name]

    def seat_all(
        self, makes: Mapping[str, Callable[[], Any]], *, patience_s: float = _READY_S
    ) -> list[str]:
        """Start several in forks of this process at once; those that became ready."""
        for name, make in makes.items():
            self.players[name] = Player.forked(make, self.players.values())
        return self._seated(makes, patience_s)

    def seat_started(
        self, players: Mapping[str, Player], *, patience_s: float = _READY_S
    ) -> list[str]:
        """Those of the started processes that became ready."""
        self.players.update(players)
        return self._seated(players, patience_s)

    def _seated(self, names: Iterable[str], patience_s: float) -> list[str]:
        for name in names:
            self.dropped.pop(name, None)
        return [name for name in names if self._tried(name, self._readiness(name, patience_s))]

    def _readiness(self, name: str, patience_s: float) -> Callable[[], Any]:
        return functools.partial(self.players[name].ready, patience_s)

    def play(self, enough: Callable[[], bool]) -> None:
        """Rounds of all processes, until there are enough or none is left."""
        while self.players and not enough():
            names = list(self.players)
            self._random.shuffle(names)
            taken = {name: self.ask(name, "turn") for name in names}
            self.rounds.append({name: Turn(*turn[0]) for name, turn in taken.items() if turn})

    def ask(self, name: str, what: str) -> tuple[Any] | None:
        """An answer; None if the process is dropped."""
        return self._tried(name, lambda: self.players[name].ask(what))

    def leave(self, name: str) -> None:
        player = self.players.pop(name)
        player.line.close()
        player.end()

    def _tried(self, name: str, asked: Callable[[], Any]) -> tuple[Any] | None:
        try:
            return (asked(),)
        except DroppedError as error:
            self.dropped[name] = error
            self.leave(name)
            return None
