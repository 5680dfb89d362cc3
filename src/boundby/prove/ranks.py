"""Proofs with several processes of one script: the first decides what runs next, for all."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from boundby.model.proof import Numerics
from boundby.prove.rounds import Action, Block, BlockResult, Check, Reply, Steps

T = TypeVar("T")
_ADDRESS = "127.0.0.1"
# Longer than any proof: a process that waits for another is ended from outside.
_LONGEST = timedelta(days=1)


class Ranks:
    """Exchanges values through a separate store, beside the script's process group."""

    def __init__(self, torch: Any, port: int) -> None:
        self.rank, self.count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._exchanges = 0
        self._store = torch.distributed.TCPStore(
            _ADDRESS, port, self.count, self.rank == 0, _LONGEST, wait_for_workers=False
        )

    def gather(self, value: T, kind: type[T]) -> list[T]:
        """The values of all ranks, in order; each rank waits for all."""
        self._exchanges += 1
        self._store.set(self._key(self.rank), msgspec.msgpack.encode(value))
        return [
            msgspec.msgpack.decode(self._store.get(self._key(rank)), type=kind)
            for rank in range(self.count)
        ]

    def from_first(self, value: T, kind: type[T]) -> T:
        """The first rank's value; those of the others are not used."""
        self._exchanges += 1
        if self.rank == 0:
            self._store.set(self._key(0), msgspec.msgpack.encode(value))
            return value
        return msgspec.msgpack.decode(self._store.get(self._key(0)), type=kind)

    def _key(self, rank: int) -> str:
        return f"{self._exchanges}/{rank}"


class _Next(msgspec.Struct):
    """The block or check that runs next; neither at the end."""

    block: Block | None = None
    check: Check | None = None


def shared_plan(plan: Steps, ranks: Ranks) -> Steps:
    """The first rank's plan for all ranks; it gets the slowest or worst of their replies."""
    reply: Reply | None = None
    while True:
        own_request = _asked(plan, reply) if ranks.rank == 0 else _Next()
        following = ranks.from_first(own_request, _Next)
        request = following.block or following.check
        if request is None:
            return
        result = yield request
        if isinstance(result, Numerics):
            reply = worst(ranks.gather(result, Numerics))
        else:
            reply = slowest(ranks.gather(result, BlockResult))


def _asked(plan: Steps, reply: Reply | None) -> _Next:
    try:
        request: Action = plan.send(reply) if reply is not None else next(plan)
    except StopIteration:
        return _Next()
    return _Next(check=request) if isinstance(request, Check) else _Next(block=request)


def slowest(replies: Sequence[BlockResult]) -> BlockResult:
    """A block that the ranks ran together: a step takes as long as on the slowest."""
    failure = next((reply.failure for reply in replies if reply.failure is not None), None)
    peaks = [reply.peak_bytes for reply in replies if reply.peak_bytes is not None]
    # Ranks may differ in which steps count.
    times = zip(*(reply.times_ns for reply in replies), strict=False)
    return BlockResult(
        times_ns=[max(each) for each in times] if failure is None else (),
        peak_bytes=max(peaks, default=None),
        failure=failure,
        nothing_changed=all(reply.nothing_changed for reply in replies),
    )


def worst(replies: Sequence[Numerics]) -> Numerics:
    """The comparison of the rank whose results differ, if any; otherwise one that could not be
    compared."""
    return min(replies, key=lambda one: (one.ok, not one.verified))


def free_port() -> int:
    """An unused port of this machine."""
    with socket.socket() as made:
        made.bind((_ADDRESS, 0))
        return int(made.getsockname()[1])


def environment_of_ranks(count: int) -> list[Mapping[str, str]]:
    """The environment that torchrun sets, for each rank of a script that is started anew."""
    if count == 1:
        return [{}]
    port = str(free_port())
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "ROLE_RANK": str(rank),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": _ADDRESS,
            "MASTER_PORT": port,
            # The store of the torchrun that started this process is already used.
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        for rank in range(count)
    ]
