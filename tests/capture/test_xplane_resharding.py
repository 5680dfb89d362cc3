"""Collectives that XLA's partitioner put into a program are told from those of the script."""

from __future__ import annotations

import pytest

from boundby.capture.xplane.hlo import read_module
from tests.capture.xplane_files import computation, hlo, instruction


def _reshards(opcode: str, op_name: str) -> bool:
    entry = computation(
        1,
        "main",
        [
            instruction(1, "x", "parameter", "f32[64,64]", (), (), (9, 0)),
            instruction(2, "collective.1", opcode, "f32[64,64]", (1,), op_name=op_name),
        ],
        2,
    )
    data = hlo("jit_step", [entry], 1, [1, 2])
    module = read_module(data, 0, len(data))
    assert module is not None
    return module.instruction(module.nodes["collective.1"]).reshards


@pytest.mark.parametrize(
    ("opcode", "op_name", "reshards"),
    [
        ("all-to-all", "jit(step)/transpose(jvp())/dot_general", True),
        ("all-to-all", "jit(step)/shard_map/all_to_all", False),
        ("all-to-all", "jit(step)/moe/sharding_constraint", False),
        ("all-to-all", "", False),
        ("all-gather", "jit(step)/jvp()/dot_general", False),
        ("all-reduce", "jit(step)/transpose(jvp())/dot_general", False),
    ],
)
def test_all_to_all_of_the_partitioner_is_resharding(
    opcode: str, op_name: str, reshards: bool
) -> None:
    assert _reshards(opcode, op_name) is reshards
