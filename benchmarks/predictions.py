"""Predicted and measured savings of each fix, from the diagnosis of the unfixed step alone.

    python benchmarks/predictions.py go bert gpt2        # the clock, and what boundby says midway
    python benchmarks/predictions.py predict bert gpt2   # what boundby says, nothing fixed yet
    python benchmarks/predictions.py measure bert gpt2   # the clock, on this machine
    python benchmarks/predictions.py table               # writes docs/figures/predictions.md

`go` does both on one machine: hosts differ by a fifth, and one host by a third within minutes. The
unfixed step is diagnosed in the middle of the measurement, as one more process beside those that
wait: a host that changed in between shows in the savings, since both halves count.

Every variant is a fresh process without a profiler, and all of a model alternate every few steps
(`turns.py`): the host's speed changes within seconds, for all of them. Processes are forked from
one that has imported torch but never used the device, which saves the start. One line of the ledger
is one measured or predicted variant.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from diagnosed import diagnosed
from medians import median_interval
from predictions_table import EAGER, LEDGER, table
from turns import Program, Turn, Turns

from boundby.model.host_speed import addition_ns
from fixes import CASES

FEWEST_ROUNDS, MOST_ROUNDS = 8, 120
# Half of a saving's interval, beside the saving and beside the step: then it is known.
NARROW, NARROW_BESIDE_STEP = 0.03, 0.002
# Of the seconds that are left to a model, for what has more to come after it.
SHARE = 0.6

Busy = dict[str, float | None]
# Called in the middle of the measurement with the number of rounds so far.
Midway = Callable[[int], None]


def measure(
    name: str, wanted: list[str], seconds: float, go: int, midway: Midway | None = None
) -> None:
    """The unfixed step and its fixes in alternation, as many at once as fit into memory."""
    base, fixes = CASES[name]
    options = {EAGER: base}
    options |= {fix: f"{base} {fixes[fix][0]}" for fix in wanted if fix in fixes}
    with Turns() as turns:
        busy, late = take_turns(turns, options, time.monotonic() + seconds, midway)
    for variant in options:
        found = measured(turns, variant)
        if variant in late or not (found["rounds_ns"] or found["problem"]):
            print(f"{name}: no time was left for {variant}")
            continue
        row = {"what": "measured", "case": name, "fix": variant, "go": go}
        LEDGER.append({**row, **found, "busy_ns": busy.get(variant)})


def import_all() -> None:
    """Here, once, so that no child has to."""
    import torch  # noqa: F401

    for library in ("transformers", "timm", "transformers.models.bert.modeling_bert"):
        try:
            __import__(library)
        except ImportError:
            print(f"{library} is not installed")


def take_turns(
    turns: Turns, options: dict[str, str], ends: float, midway: Midway | None = None
) -> tuple[Busy, list[str]]:
    """The device's busy time of each variant that played, and those for which there was no time.

    A variant without memory beside the others runs after them, with the unfixed step, or without it
    if that is too much.
    """
    busy: Busy = {}
    late: list[str] = []
    _seat(turns, {EAGER: options[EAGER]})
    waiting = [fix for fix in options if fix != EAGER]
    while waiting:
        until = _share(ends)
        for together in _groups(waiting, options):
            if time.monotonic() < until:
                _seat(turns, {fix: options[fix] for fix in together})
            else:
                late += together
        if turns.players.keys() != {EAGER} or not turns.rounds:
            until, first = _share(ends) if _crowded(turns) else ends, len(turns.rounds)
            if midway is not None:
                _play(turns, (time.monotonic() + until) / 2, first)
                began = time.monotonic()
                midway(len(turns.rounds))
                # Its own time is not part of the measurement.
                spent = time.monotonic() - began
                ends, until, midway = ends + spent, until + spent, None
            _play(turns, until, first)
        _finish(turns, [one for one in turns.players if one != EAGER], busy)
        crowded = [fix for fix in waiting if fix in _crowded(turns)]
        if time.monotonic() > ends:
            late += crowded
            break
        if crowded == waiting:
            if EAGER not in turns.players:
                break
            _finish(turns, [EAGER], busy)
        waiting = crowded
    _finish(turns, [EAGER], busy)
    return busy, late


def _share(ends: float) -> float:
    """Until when something may go on that has more to come after it."""
    now = time.monotonic()
    return now + SHARE * (ends - now)


def _crowded(turns: Turns) -> list[str]:
    return [variant for variant, why in turns.dropped.items() if why.crowded]


def _groups(waiting: list[str], options: dict[str, str]) -> list[list[str]]:
    """Which variants are prepared together. A larger batch fills the memory, and a compiler tunes
    kernels by timing: those are prepared alone, and compiled ones last: they take longest."""
    alone = [fix for fix in waiting if "--batch" in options[fix]]
    compiled = [fix for fix in waiting if "--compile" in options[fix] and fix not in alone]
    others = [fix for fix in waiting if fix not in {*alone, *compiled}]
    return [group for group in (others, *([fix] for fix in (*alone, *compiled))) if group]


def _seat(turns: Turns, options: dict[str, str]) -> None:
    makes = {fix: functools.partial(program, words.split()) for fix, words in options.items()}
    ready = turns.seat_all(makes)
    if ready:
        # Prepared processes have released memory that the ones without may use now.
        ready += [fix for fix in options if fix in _crowded(turns) and turns.seat(fix, makes[fix])]
    for fix in options:
        words = "is ready" if fix in ready else f"fails: {turns.dropped[fix]}"
        print(fix, words, flush=True)


def _play(turns: Turns, deadline: float, first: int) -> None:
    """Rounds until the deadline, or until those since the first one tell enough."""
    begun = len(turns.rounds)

    def enough() -> bool:
        played = len(turns.rounds) - begun
        if time.monotonic() > deadline or played >= MOST_ROUNDS:
            return True
        return played >= FEWEST_ROUNDS and played % 4 == 0 and _known(turns.rounds[first:])

    turns.play(enough)


def _known(rounds: list[dict[str, Turn]]) -> bool:
    """Whether every saving is known within a few percent of it, or of the step, at 95%."""
    for variant in rounds[-1].keys() - {EAGER}:
        steps = [(one.get(EAGER), one[variant]) for one in rounds if variant in one]
        saved = [(a.step_ns if a else 0.0) - b.step_ns for a, b in steps]
        low, middle, high = median_interval(saved)
        least = NARROW_BESIDE_STEP * statistics.median(b.step_ns for _, b in steps)
        if (high - low) / 2 > max(NARROW * abs(middle), least):
            return False
    return True


def _finish(turns: Turns, variants: list[str], busy: Busy) -> None:
    for variant in variants:
        if variant not in turns.players:
            continue
        if (answer := turns.ask(variant, "busy_ns")) is None:
            # Its turns count even if the profiler fails.
            print(f"{variant}: not profiled: {turns.dropped.pop(variant)}", flush=True)
            continue
        busy[variant] = answer[0]
        turns.leave(variant)


def measured(turns: Turns, variant: str) -> dict[str, Any]:
    """Its turns in order. The unfixed step of the same round is `first_round` further on."""
    mine = [(number, one[variant]) for number, one in enumerate(turns.rounds) if variant in one]
    why = turns.dropped.get(variant)
    if why is not None:
        mine = []
    steps = [round(turn.step_ns) for _, turn in mine]
    paces = [round(turn.pace_ns, 2) for _, turn in mine]
    if mine:
        low, middle, high = (ns / 1e6 for ns in median_interval(steps))
        print(f"{variant}: {middle:.2f} ms ({low:.2f} to {high:.2f}), {len(mine)} turns;", end=" ")
        print(f"an addition in Python took {min(paces):.0f} to {max(paces):.0f} ns", flush=True)
    return {
        "processes": 1,
        "first_round": mine[0][0] if mine else None,
        "rounds_ns": steps,
        "pace_ns": paces,
        "problem": str(why) if why is not None else None,
    }


def program(options: list[str]) -> Program:
    import workloads

    args = workloads.arguments().parse_args(options)
    workloads.prepare(args)
    return Program(workloads.step_of(args), cuda=args.device == "cuda")


def predict(name: str, go: int, played: int | None = None) -> None:
    """Predictions for each fix from one diagnosis of the unfixed step, after so many rounds."""
    base, fixes = CASES[name]
    paces = [addition_ns()]
    diagnosis = diagnosed(name, ["benchmarks/workloads.py", *base.split()])
    if diagnosis is None:
        return
    paces.append(addition_ns())
    wall = diagnosis["step"]["wall_ns"]
    error = diagnosis["step"]["replay_error"]
    print(f"{name}: {wall / 1e6:.2f} ms, replay error {error:+.3f}", flush=True)
    for fix, (_, faults) in fixes.items():
        found = predicted(diagnosis, faults)
        row = {"what": "predicted", "case": name, "fix": fix, "go": go, "wall_ns": wall}
        row |= {} if played is None else {"round": played}
        LEDGER.append({**row, **found, "pace_ns": [round(ns, 2) for ns in paces]})
        shown = {key: round(ns / 1e6, 2) for key, ns in found["predicted_ns"].items()}
        print(f"  {fix}: {shown}", flush=True)


def predicted(diagnosis: dict[str, Any], faults: list[str]) -> dict[str, Any]:
    """The step's time with some faults fixed; a fault that was not found costs nothing."""
    wall = diagnosis["step"]["wall_ns"]
    error = diagnosis["step"]["replay_error"]
    if faults[0].startswith("batch-"):
        factor = int(faults[0].removeprefix("batch-").removesuffix("x"))
        row = next(row for row in diagnosis["batches"] if row["factor"] == factor)
        times = {"predicted_ns": row["wall_ns"], "saving_ns": row["saving_ns"]}
        return {**times, "replay_error": error, "factor": factor}
    known = {finding["fault"] for finding in diagnosis["findings"]}
    fixed = known & set(faults)
    within = [row for row in diagnosis["what_if"] if set() < set(row["faults"]) <= fixed]
    if within:
        # Not every set of findings has a row: the largest that does, and of two the faster.
        row = max(within, key=lambda row: (len(row["faults"]), -row["wall_ns"]["expected"]))
        times = {"predicted_ns": row["wall_ns"], "saving_ns": row["saving_ns"]}
        return {**times, "replay_error": error, "faults": row["faults"]}
    nothing = {"low": 0.99 * wall, "expected": wall, "high": wall}
    return {"predicted_ns": nothing, "replay_error": error, "faults": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["go", "measure", "predict", "table"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--fixes", default="", help="only these of them, separated by commas")
    parser.add_argument(
        "--seconds", type=float, default=400.0, help="for all of a model's variants"
    )
    args = parser.parse_args()
    if args.verb == "table":
        table()
        return
    if args.verb != "predict":
        import_all()
    for name in args.names or list(CASES):
        go = int(time.time())
        if args.verb == "predict":
            predict(name, go)
            continue
        midway = functools.partial(predict, name, go) if args.verb == "go" else None
        wanted = [fix for fix in args.fixes.split(",") if fix] or list(CASES[name][1])
        measure(name, wanted, args.seconds, go, midway)


if __name__ == "__main__":
    main()
