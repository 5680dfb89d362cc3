"""A diagnosis that has everything a page can show: a real step, with the rest made up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

import boundby
from boundby.model import Machine, Note, Point
from boundby.model.account import Account, Group, Verdict
from boundby.model.diagnosis import Diagnosis, StepTimes
from boundby.model.estimate import Estimate
from boundby.model.finding import BatchRow, Finding, WhatIf
from boundby.model.proof import Numerics, Outcome, Peak, Proof, Speedup
from boundby.model.rows import CollectiveRow, RankRow, Slice
from tests.machines import round_machine

SYNCS = Path(__file__).parent / "data" / "h200" / "bad_mlp_syncs.json.gz"
EVIL = "</script><img src=x onerror=alert(1)>"


def spread(expected: float) -> Estimate:
    return Estimate(low=0.8 * expected, expected=expected, high=1.2 * expected)


@cache
def real_diagnosis() -> Diagnosis:
    """Of a small network with syncs, traced on an H200; a measured machine with curves."""
    machine = round_machine()
    machine = msgspec.structs.replace(
        machine,
        roofs=[
            msgspec.structs.replace(roof, datasheet=1.25 * roof.value, spread=0.02)
            for roof in machine.roofs
        ],
        curves={
            "memory.copy": [Point(size=2.0**n, value=1e9 * n, ns=1.0) for n in range(12, 30)],
            "memory.add": [Point(size=2.0**n, value=1.1e9 * n, ns=1.0) for n in range(12, 30)],
            "matmul.bfloat16": [Point(size=8.0**n, value=9.0**n, ns=1.0) for n in range(5, 12)],
        },
        warnings=["wide spread between samples: is something else running here?"],
    )
    return boundby.load(SYNCS, machine=machine, wall_ns=14.6e6)


@cache
def full_diagnosis() -> Diagnosis:
    """With what-if, proofs, ranks, collectives and notes as they would come."""
    diagnosis = real_diagnosis()
    wall = diagnosis.step.wall_ns
    first, second, third = "unfused-optimizer", "host-sync", "eager-launches"
    return msgspec.structs.replace(
        diagnosis,
        findings=[
            _finding(first, 0.4 * wall, excludes=[third]),
            _finding(second, 0.2 * wall),
            _finding(third, 0.1 * wall),
        ],
        what_if=[
            _together(wall, 1.0),
            _together(wall, 0.6, first),
            _together(wall, 0.8, second),
            _together(wall, 0.9, third),
            _together(wall, 0.5, first, second),
            _together(wall, 0.7, second, third),
        ],
        batches=[
            BatchRow(factor=2, wall_ns=spread(1.25 * wall)),
            BatchRow(factor=4, wall_ns=spread(2.0 * wall)),
        ],
        proofs=[
            Proof(
                faults=[first],
                treatment="fused=True",
                before_ns=[14.5e6, 14.6e6, 14.7e6],
                after_ns=[9.0e6, 9.1e6, 9.2e6],
                speedup=Speedup(low=1.55, median=1.6, high=1.66),
                predicted=Estimate(low=1.4, expected=1.7, high=1.9),
                peak_bytes=Peak(before=2e9, after=2.1e9),
                numerics=Numerics(ok=True, why="losses within 1e-6 over 10 steps"),
                outcome=Outcome.KEPT,
            ),
            Proof(faults=[second], outcome=Outcome.FAILED, why="the script raised RuntimeError"),
            Proof(
                faults=[first, second],
                speedup=Speedup(low=0.97, median=0.99, high=1.01),
                predicted=spread(2.0),
                outcome=Outcome.NO_GAIN,
            ),
        ],
        collectives=[
            CollectiveRow(
                name="ncclDevKernel_AllReduce_Sum_f32_RING",
                bytes=1e8,
                count=3,
                ns=3e6,
                exposed_ns=1e6,
                bytes_per_s=1e11,
            )
        ],
        ranks=[_rank(rank) for rank in range(4)]
        + [RankRow(rank=4, name="rank4.json", wall_ns=0.0, problem="rank4.json: no such file")],
        notes=[
            Note(code="uneven-steps", text="clean steps took 14.1 ms to 22.3 ms"),
            Note(code="observer-failed", text=f"a script named {EVIL}"),
        ],
    )


def bare_diagnosis() -> Diagnosis:
    """Nothing was profiled, and the machine is not known."""
    nothing = Group()
    return Diagnosis(
        machine=Machine(device="unknown device", kind="cpu"),
        step=StepTimes(
            kind="train",
            wall_ns=5e6,
            wall_source="clean",
            wall_interval_ns=(5e6, 5e6),
            samples_ns=[5e6],
        ),
        account=Account(
            compute=nothing,
            bandwidth=nothing,
            overhead=nothing,
            unknown=Group(ns=5e6, share=1.0),
        ),
        verdict=Verdict(bound_by="unknown", uncertain=True, why="nothing was profiled"),
        notes=[
            Note(code="no-profile", text="no profile: only the step's time is known"),
        ],
    )


def _finding(fault: str, saving_ns: float, excludes: Sequence[str] = ()) -> Finding:
    return Finding(
        fault=fault,
        group="overhead",
        where=["src/train.py:57", "src/train.py:61"],
        saving_ns=spread(saving_ns),
        change=f"mend({fault!r})",
        assumes="nothing depends on it",
        excludes=list(excludes),
        summary="The step does something twice.",
        why="it has to wait",
        when_not="when it does not",
    )


def _together(wall: float, factor: float, *faults: str) -> WhatIf:
    groups = {"compute": 0.3, "bandwidth": 0.2, "overhead": 0.4, "unknown": 0.1}
    expected = wall * factor
    return WhatIf(
        faults=list(faults),
        wall_ns=spread(expected),
        groups={name: part * expected for name, part in groups.items()},
    )


def _rank(rank: int) -> RankRow:
    return RankRow(
        rank=rank,
        name=f"rank{rank}.json",
        wall_ns=14.6e6,
        device_busy_ns=3e6,
        groups={"compute": 0.2, "bandwidth": 0.2, "overhead": 0.6, "unknown": 0.0},
        communication_ns=2e6,
        exposed_ns=1e6,
        waiting_ns=0.0 if rank == 2 else 1.5e6,
    )


def evil_diagnosis() -> Diagnosis:
    """Every name in it tries to become markup."""
    diagnosis = full_diagnosis()
    replace = msgspec.structs.replace
    return replace(
        diagnosis,
        target=EVIL,
        machine=replace(diagnosis.machine, device=EVIL, warnings=[EVIL]),
        verdict=replace(diagnosis.verdict, why=EVIL),
        ops=[replace(row, name=EVIL, where=EVIL, shapes=EVIL) for row in diagnosis.ops],
        lines=[replace(row, where=EVIL, text=EVIL) for row in diagnosis.lines],
        modules=[replace(row, where=f"{EVIL}.{row.where}") for row in diagnosis.modules],
        findings=[
            replace(row, change=EVIL, where=[EVIL], assumes=EVIL) for row in diagnosis.findings
        ],
        proofs=[replace(proof, why=EVIL, treatment=EVIL) for proof in diagnosis.proofs],
        collectives=[replace(row, name=EVIL) for row in diagnosis.collectives],
        ranks=[replace(row, name=EVIL) for row in diagnosis.ranks],
        idle=[replace(row, name=EVIL, where=EVIL) for row in diagnosis.idle],
        timeline=[replace(piece, name=EVIL, where=EVIL) for piece in diagnosis.timeline],
        notes=[Note(code="no-profile", text=text) for text in (EVIL, "\u2028\u2029<!--", "]]>")],
    )


def large_diagnosis() -> Diagnosis:
    """400 operators and 20,000 slices, as long a page as there is."""
    diagnosis = full_diagnosis()
    rows = [
        msgspec.structs.replace(
            diagnosis.ops[index % len(diagnosis.ops)],
            where=f"model/layers/block_{index}.py:{index}",
            shapes=f"{index}x1024x4096, 4096x{index}",
        )
        for index in range(400)
    ]
    slices = [
        Slice(
            lane="host" if index % 3 < 2 else "stream",
            number=(1000 if index % 3 < 2 else 0) + index % 2,
            name=f"void at::native::kernel_{index % 400}<float, {index % 400}>(float*, int)",
            start_ns=1234.0 * index + index % 7,
            ns=700.0 + (index * 7919) % 613,
            op=index % 400 if index % 3 == 2 else None,
            bound="memory" if index % 3 == 2 else None,
            floor_ns=351.123 if index % 3 == 2 else None,
            where=f"model/layers/block_{index % 400}.py:{index % 400}",
            flow=index - 1 if index % 3 == 2 else None,
        )
        for index in range(20_000)
    ]
    return msgspec.structs.replace(diagnosis, ops=rows, timeline=slices)
