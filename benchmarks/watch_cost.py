"""What being watched costs a script as a whole: a plain process and a watched one, taking turns.

    python benchmarks/watch_cost.py --rounds 5
    python benchmarks/watch_cost.py --rounds 5 -- bert-base-b1 --batch 4

In both the script times its own steps by the same clock, a few at a time, while the other waits
(`turns.py`); boundby watches one of them through warm-up and clean steps, without a profiler. Hooks
on and off in one process (hook_cost.py) cannot show what a process pays as a whole; processes
differ by more, so every round is a new pair of them. Prints the medians and their ratio after each
round, with a bootstrap interval over the turns of the pair and over the pairs so far.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time

from ledger import ROOT
from medians import median_interval
from turns import DroppedError, Player, Program, Turn, serve

# boundby's clean steps end after 20 s, waiting included, and a profiler comes next.
MOST_S = 12.0


def script(options: list[str]) -> None:
    """The observed process: a workload that takes its steps on request."""
    import workloads

    args = workloads.arguments().parse_args(options)
    workloads.prepare(args)
    serve(lambda: Program(workloads.step_of(args), cuda=args.device == "cuda"))


def take(options: list[str], turns: int) -> tuple[list[Turn], list[Turn]]:
    """The turns of one pair of processes: plain, watched."""
    # More clean steps than there are: nothing but watching happens.
    watching = ["-m", "boundby", "run", "--quiet", "--steps", "100000", "--continue"]
    taken: list[list[Turn]] = [[], []]
    players: list[Player] = []
    with tempfile.TemporaryFile("w+") as log:
        try:
            for words in ([], watching):
                command = [sys.executable, *words, __file__, "script", *options]
                # The watched one is ready last: its clean steps begin then.
                players.append(Player.started(command, cwd=ROOT, stdout=log, stderr=log))
                players[-1].ready()
            ends = time.monotonic() + MOST_S
            while len(taken[0]) < turns and time.monotonic() < ends:
                for which in (0, 1) if len(taken[0]) % 2 else (1, 0):
                    taken[which].append(Turn(*players[which].ask("turn")))
        except DroppedError as error:
            log.seek(0)
            sys.exit(f"{log.read()[-2000:]}\n{error}")
        finally:
            for player in players:
                player.line.close()
                player.end()
    return taken[0], taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of processes")
    parser.add_argument("--turns", type=int, default=30, help="of each process, at most")
    parser.add_argument("options", nargs="*", default=["bert-base-b1"])
    given = parser.parse_args()
    ratios: list[float] = []
    for number in range(1, given.rounds + 1):
        plain, watched = take(given.options, given.turns)
        pairs = [b.step_ns / a.step_ns for a, b in zip(plain, watched, strict=True)]
        low, ratio, high = median_interval(pairs)
        ratios.append(ratio)
        before, after = (
            statistics.median(turn.step_ns for turn in turns) / 1e6 for turns in (plain, watched)
        )
        print(
            f"round {number}: {before:.3f} ms plain, {after:.3f} watched, ratio {ratio:.4f} "
            f"({low:.4f} to {high:.4f}), {len(pairs)} turns each"
        )
        low, ratio, high = median_interval(ratios)
        print(
            f"{' '.join(given.options)}: ratio {ratio:.4f} ({low:.4f} to {high:.4f}), "
            f"{number} of each process",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["script"]:
        script(sys.argv[2:])
    else:
        main()
