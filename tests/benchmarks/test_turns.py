"""Programs that take turns: one at work while the others wait, and what becomes of the unruly."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("turns", None)
    return __import__("turns")


class Diary:
    """A program that writes down when it worked."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def turn(self) -> tuple[float, float]:
        began = time.monotonic_ns()
        time.sleep(0.002)
        with self._path.open("a") as file:
            file.write(f"{began} {time.monotonic_ns()} {os.getpid()}\n")
        return 1.0, 2.0


def rounds(turns: ModuleType, count: int) -> Callable[[], bool]:
    return lambda: len(turns.rounds) >= count


def test_processes_take_turns_one_at_a_time(turns: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "diary"
    with turns.Turns() as game:
        for name in "abc":
            assert game.seat(name, lambda: Diary(path))
        game.play(rounds(game, 8))
        assert all(set(one) == set("abc") for one in game.rounds)
        assert game.rounds[0]["a"] == turns.Turn(step_ns=1.0, pace_ns=2.0)
    notes = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
    assert len(notes) == 24 and len({note[2] for note in notes}) == 3
    # No turn begins before the previous one has ended, and the order changes.
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(notes))
    assert len({tuple(note[2] for note in notes[at : at + 3]) for at in range(0, 24, 3)}) > 1


class Late:
    """Plays twice, then does what it must not."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._left, self._act = 2, act

    def turn(self) -> tuple[float, float]:
        if not self._left:
            self._act()
        self._left -= 1
        return 1.0, 1.0


def test_failed_dead_or_hanging_process_is_dropped(
    turns: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("no such layer\nand more")

    monkeypatch.setattr(turns.Player.ask, "__defaults__", (8.0,))
    with turns.Turns() as game:
        assert not game.seat("unmade", fail)
        game.seat("fails", lambda: Late(fail))
        game.seat("dies", lambda: Late(lambda: os._exit(3)))
        game.seat("hangs", lambda: Late(lambda: time.sleep(60)))
        game.seat("plays", lambda: Late(lambda: None))
        game.play(rounds(game, 5))
        assert list(game.players) == ["plays"]
        assert {name: str(why) for name, why in game.dropped.items()} == {
            "unmade": "ValueError: no such layer",
            "fails": "ValueError: no such layer",
            "dies": "its process died",
            "hangs": "no answer in 8 s",
        }
    assert [len(one) for one in game.rounds] == [4, 4, 1, 1, 1]


@pytest.mark.parametrize(
    ("words", "crowded"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", True),
        ("RuntimeError: expected a memory format", False),
    ],
)
def test_lack_of_memory_is_recognised(turns: ModuleType, words: str, crowded: bool) -> None:
    assert turns.DroppedError(words).crowded is crowded


def test_server_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, signal, turns\n"
        "class Idle:\n"
        "    def turn(self): return os.getpid(), 1.0\n"
        "game = turns.Turns()\n"
        "game.seat('a', Idle)\n"
        "game.seat('b', Idle)\n"
        "game.play(lambda: game.rounds)\n"
        "print(*(one.step_ns for one in game.rounds[0].values()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "benchmarks",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    ids = [int(word) for word in done.stdout.split()]
    assert len(ids) == 2
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{one}").exists() for one in ids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{one}").exists() for one in ids)


def test_started_command_takes_turns(turns: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import turns\n"
        "turns.serve(lambda: turns.Program(lambda: sum(range(1000)), cuda=False, turn_s=0.001))\n"
    )
    environment = f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"
    command = ["env", f"PYTHONPATH={environment}", sys.executable, str(script)]
    player = turns.Player.started(command)
    try:
        player.ready()
        step_ns, pace_ns = player.ask("turn")
        assert step_ns > 0 and pace_ns > 0
        assert player.ask("busy_ns") is None
        with pytest.raises(turns.DroppedError, match="has no attribute 'dance'"):
            player.ask("dance")
    finally:
        player.end()
