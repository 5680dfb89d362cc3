"""The result of `boundby prove` in alternation with the best version by hand."""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger import ROOT, device
from proofs_table import LEDGER, best
from provable import SCRIPTS
from turns import Player, Turn, Turns

from boundby.faults import FAULTS
from boundby.prove.confidence import speedup_of
from boundby.prove.worker import fix_of

# Rounds of every variant by hand, to choose among them; then of the best and of what `prove` came
# to, each in two processes.
SCREENING, ROUNDS = 6, 20
LONG = ["--steps", "20000"]  # more than they come to
OURS, AGAIN = "prove", " again"
_PATIENCE_S = 400.0


def hand(names: list[str]) -> None:
    """The best of `prove` and the best by hand in alternation, each in its own processes."""
    for name in names:
        proved = LEDGER.newest().get(("prove", name, device()))
        if proved is None:
            print(f"{name}: prove it first")
            continue
        final = best(proved)
        keys = [] if final is None else keys_of(final)
        script, variants = SCRIPTS[name]
        by_hand = "benchmarks/slow_mlp_by_hand.py" if name == "slow_mlp" else script[0]
        commands = {" ".join(flags): [by_hand, *script[1:], *flags, *LONG] for flags in variants}
        compared = beside([*script, *LONG], keys, commands)
        if compared is not None:
            LEDGER.append({"kind": "hand", "name": name, "device": device(), **compared})


def beside(
    script: Sequence[str], keys: Sequence[str], variants: Mapping[str, Sequence[str]]
) -> dict[str, Any] | None:
    """Every variant by hand, then the best of them in alternation with the result of `prove`."""
    with tempfile.TemporaryDirectory() as folder, Turns() as turns:
        started = {OURS: player(script, keys, Path(folder) / "prove.log")}
        for number, (flags, command) in enumerate(variants.items()):
            started[flags] = player(command, [], Path(folder) / f"{number}.log")
        turns.seat_started(started, patience_s=_PATIENCE_S)
        turns.play(lambda: len(turns.rounds) >= SCREENING)
        playing = [flags for flags in variants if flags in turns.players]
        screened = {flags: _steps(turns.rounds, flags) for flags in playing}
        for flags, steps in screened.items():
            print(f"{flags}: {statistics.median(steps) / 1e6:.2f} ms", flush=True)
        print(*(f"{name}: {why}" for name, why in turns.dropped.items()), sep="\n", flush=True)
        if OURS not in turns.players or not screened:
            return None
        chosen = min(screened, key=lambda flags: statistics.median(screened[flags]))
        for flags in turns.players.keys() - {OURS, chosen}:
            turns.leave(flags)
        turns.seat_started(
            {
                OURS + AGAIN: player(script, keys, Path(folder) / "prove_again.log"),
                chosen + AGAIN: player(variants[chosen], [], Path(folder) / "again.log"),
            },
            patience_s=_PATIENCE_S,
        )
        turns.play(lambda: len(turns.rounds) >= SCREENING + ROUNDS)
        rounds = turns.rounds[SCREENING:]
    pairs = (OURS, OURS + AGAIN), (chosen, chosen + AGAIN)
    ours, theirs = ([_steps(rounds, name) for name in pair] for pair in pairs)
    steady = [_at_one_pace(rounds, pair) for pair in pairs]
    if not all(steady):
        print(*(f"{name}: {why}" for name, why in turns.dropped.items()), sep="\n")
        return None
    rows = [[statistics.geometric_mean(one) for one in zip(*pair, strict=True)] for pair in steady]
    found = speedup_of([math.log(hand / own) for own, hand in zip(*rows, strict=True)])
    assert found is not None
    return {
        "prove": list(keys),
        "hand": chosen,
        "prove_ms": [statistics.median(one) / 1e6 for one in ours if one],
        "hand_ms": [statistics.median(one) / 1e6 for one in theirs if one],
        "screened_ms": {k: statistics.median(v) / 1e6 for k, v in screened.items()},
        "speed_of_hand": [found.low, found.median, found.high],
        "pace_ns": [round(min(t.pace_ns for t in one.values()), 2) for one in rounds if one],
    }


def player(command: Sequence[str], keys: Sequence[str], log: Path) -> Player:
    """The script in a process of its own, with treatments applied from outside."""
    extra = {k: v for key in keys for k, v in fix_of(key).environment.items()}
    words = [sys.executable, str(ROOT / "benchmarks" / "in_turn.py"), ",".join(keys), *command]
    with log.open("w") as file:
        return Player.started(
            words, environment={**os.environ, **extra}, cwd=ROOT, stdout=file, stderr=file
        )


def _steps(rounds: Sequence[Mapping[str, Turn]], name: str) -> list[float]:
    return [one[name].step_ns for one in rounds if name in one]


def _at_one_pace(rounds: Sequence[Mapping[str, Turn]], names: Sequence[str]) -> list[list[float]]:
    """Each one's steps as if every round had been of the usual pace: it is the same for all."""
    whole = [one for one in rounds if len(one) == max(map(len, rounds))]
    paces = [statistics.geometric_mean(turn.step_ns for turn in one.values()) for one in whole]
    usual = statistics.median(paces)
    return [
        [one[name].step_ns * usual / pace for one, pace in zip(whole, paces, strict=True)]
        for name in names
        if all(name in one for one in whole)
    ]


def keys_of(proof: dict[str, Any]) -> list[str]:
    """A combination's fixes by key: each name belongs to one of its faults."""
    fixes = {fault.id: [fix.name for fix in fault.fixes] for fault in FAULTS}
    keys = []
    for name in proof["fixes"]:
        fault = next(f for f in proof["faults"] if name in fixes[f])
        keys.append(f"{fault}/{name}")
    return keys
