"""What `boundby prove` came to, in turn with the best that is made of the script by hand."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from ledger import ROOT, device
from proofs_table import LEDGER, best
from provable import SCRIPTS

from boundby.capture.live.execution import Target
from boundby.pace import addition_ns
from boundby.program import TREATMENTS
from boundby.trials import process, speedup
from boundby.trials.forks import Forks
from boundby.trials.observation import Observed
from boundby.trials.worker import treatment

ROUNDS = 2


def hand(names: list[str]) -> None:
    """The best of `prove` and the best by hand, in turn, each in processes of its own."""
    for name in names:
        proved = LEDGER.newest().get(("prove", name, device()))
        if proved is None:
            print(f"{name}: prove it first")
            continue
        final = best(proved)
        keys = [] if final is None else keys_of(final)
        with tempfile.TemporaryDirectory() as folder:
            compared = beside(name, keys, Clock(SCRIPTS[name][0], Path(folder)))
        if compared is not None:
            LEDGER.append({"kind": "hand", "name": name, "device": device(), **compared})


def beside(name: str, keys: list[str], clock: Clock) -> dict[str, Any] | None:
    """Every variant by hand once, then the best of them in turn with what `prove` came to."""
    script, variants = SCRIPTS[name]
    by_hand = "benchmarks/slow_mlp_by_hand.py" if name == "slow_mlp" else script[0]
    screened = {}
    with clock.forks:
        for flags in variants:
            steps = clock.take([by_hand, *script[1:], *flags], [])
            if steps:
                screened[" ".join(flags)] = steps
            print(name, flags, f"{statistics.median(steps) / 1e6:.2f} ms" if steps else "failed")
        if not screened:
            return None
        chosen = min(screened, key=lambda flags: statistics.median(screened[flags]))
        ours, theirs = [], [screened[chosen]]
        for turn in range(ROUNDS):
            ours.append(clock.take(script, keys))
            if turn:
                theirs.append(clock.take([by_hand, *script[1:], *chosen.split()], []))
    found = speedup.estimate(theirs, ours, speedup.scatter([ours, theirs]))
    return {
        "prove": keys,
        "hand": chosen,
        "prove_ms": [statistics.median(one) / 1e6 for one in ours],
        "hand_ms": [statistics.median(one) / 1e6 for one in theirs],
        "screened_ms": {k: statistics.median(v) / 1e6 for k, v in screened.items()},
        "speed_of_hand": [found.low, found.median, found.high],
        "pace_ns": clock.paces_ns,
    }


class Clock:
    """Clean steps of a script, each time in a process of its own, forked where it can be."""

    def __init__(self, command: list[str], folder: Path) -> None:
        """One run of the script as it is notes what it imports, for the forks after it."""
        # One addition in Python before each process: whether the host was the same for all.
        self.paces_ns: list[float] = []
        self._folder = folder
        self._imports = folder / "imports.json"
        self.forks = Forks(
            target=_target(command),
            imports=self._imports,
            folder=folder,
            environment=process.environment({}),
        )
        self._observe(command, [], forked=False)

    def take(self, command: list[str], keys: list[str]) -> list[float]:
        """Its steps in ns, with treatments applied from outside; none if it failed."""
        self.paces_ns.append(round(addition_ns(), 2))
        forked = not any(treatment(key).environment for key in keys) and self.forks.prepare(ROOT)
        observed = self._observe(command, keys, forked=forked)
        if observed.problem:
            print(command, keys, observed.problem)
        return observed.samples_ns

    def _observe(self, command: list[str], keys: list[str], *, forked: bool) -> Observed:
        environment = {k: v for key in keys for k, v in treatment(key).environment.items()}
        setting = process.Setting(target=_target(command), imports=self._imports)
        # To be compared a program is changed for a while, and what it compiles or captures by
        # itself does not survive that.
        wanted = process.Wanted(
            arm=tuple(keys),
            seed=1,
            compared=False,
            environment=environment,
            limit_s=400,
            forked=forked,
        )
        return process.observe(
            setting, wanted, folder=self._folder, cwd=ROOT, forks=self.forks if forked else None
        )


def _target(command: list[str]) -> Target:
    name, *args = command
    return Target(name=name, args=args, is_module=False)


def keys_of(proof: dict[str, Any]) -> list[str]:
    """A combination's treatments by key: each name belongs to one of its faults."""
    keys = []
    for name in proof["treatment"].split(" + "):
        fault = next(f for f in proof["faults"] if any(t.name == name for t in TREATMENTS[f]))
        keys.append(f"{fault}/{name}")
    return keys
