"""How often a fix that changes nothing is called faster: `python benchmarks/no_change.py 20`.

Each time an example runs in a process of its own, with six switched fixes that change nothing; the
live engine decides on them as it does on any other. Also a plugin, for one run with a report:
`boundby prove --plugin benchmarks.no_change --try nothing-1 SCRIPT`.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from boundby import faults
from boundby.capture.process.execution import Target
from boundby.faults import HEADINGS, Fault, Fix
from boundby.fixes.log import note
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence
from boundby.prove.launch import Setting
from boundby.prove.live_run import LiveRun

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ["examples/slow_mlp.py", "--steps", "100000"]
_FIXES = 6
_BUDGET_S = 45.0


@contextlib.contextmanager
def change_nothing() -> Iterator[None]:
    note("nothing at all")
    yield


for _number in range(1, _FIXES + 1):
    faults.register(
        Fault(
            id=f"no-change-{_number}",
            title="Nothing is wrong",
            group="overhead",
            document="Nothing is wrong.\n\n" + "\n".join(HEADINGS),
            detect=lambda step: None,
            fixes=(Fix(name=f"nothing-{_number}", change="# nothing", apply=change_nothing),),
        )
    )


def decisions(folder: Path) -> Evidence:
    """The result of one live process."""
    candidates = [
        Candidate(key=f"no-change-{n}/nothing-{n}", faults=(f"no-change-{n}",), change="# nothing")
        for n in range(1, _FIXES + 1)
    ]
    script, *args = SCRIPT
    run = LiveRun(
        setting=Setting(
            target=Target(name=str(ROOT / script), args=args, is_module=False),
            folder=folder,
            logs=folder,
            plugins=["benchmarks.no_change"],
            search_path=[str(ROOT), str(ROOT / "src")],
        ),
        candidates=candidates,
        evidence=Evidence(),
        deadline=time.monotonic() + _BUDGET_S,
        place=lambda: ROOT,
    )
    run.run()
    return run.evidence


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    faster = missed = total = 0
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            evidence = decisions(Path(folder))
        for one in evidence.comparisons:
            found = one.speedup
            if found is None:
                continue
            total += 1
            faster += one.decision == "faster"
            missed += not found.low <= 1.0 <= found.high
            words = f"{found.low:.3f} to {found.high:.3f}, {one.decision}"
            print(f"{one.variant[-1]}: {len(one.log_ratios)} rounds, {words}", flush=True)
    print(f"{total} decisions: {faster} called faster, {missed} intervals without 1")


if __name__ == "__main__":
    main()
