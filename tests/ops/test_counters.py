"""Counted bytes against an H200's own counters (dram__bytes.sum), for tensors well past its L2."""

import pytest

from boundby.model import Argument
from tests.ops.builders import cost, t

BF = "bfloat16"
ROWS, WIDTH = 64 * 1024, 4096
BIG = t(ROWS, WIDTH, dtype=BF, strides=(WIDTH, 1), storage=1, identity=0)
FLIPPED = t(WIDTH, ROWS, dtype=BF, strides=(1, WIDTH), storage=1)
PARAMETER = t(WIDTH, dtype=BF, strides=(1,), storage=2)
HEADS_BYTES = 2 * 128 * 2048 * 64
HEADS = t(128, 2048, 64, dtype=BF, strides=(2048 * 64, 64, 1), storage=3, storage_bytes=HEADS_BYTES)
HEADS_FLIPPED = t(
    128, 64, 2048, dtype=BF, strides=(2048 * 64, 1, 64), storage=3, storage_bytes=HEADS_BYTES
)

CASES: list[tuple[str, str, tuple[Argument, ...], float]] = [
    ("gelu_big", "gelu", (BIG, "none"), 1053949952),
    ("layernorm_big", "native_layer_norm", (BIG, (WIDTH,), PARAMETER, PARAMETER, 1e-5), 1063977728),
    ("add_big", "add", (BIG, BIG, 1), 1051257088),
    ("softmax_big", "_softmax", (BIG, -1, False), 1055750912),
    ("transpose_copy", "copy_", (t(WIDTH, ROWS, dtype=BF), FLIPPED, False), 1061501696),
    ("sum_dim0", "sum", (BIG, (0,), False, None), 540580096),
    ("dropout", "native_dropout", (BIG, 0.1, True), 1319266048),
    ("bmm", "bmm", (HEADS, HEADS_FLIPPED), 1080582912),
    ("to_float", "copy_", (t(ROWS, WIDTH), BIG, False), 1585549824),
]


@pytest.mark.parametrize(
    ("name", "args", "counted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_bytes_agree_with_hardware_counters(
    name: str, args: tuple[Argument, ...], counted: float
) -> None:
    assert cost(name, *args).bytes == pytest.approx(counted, rel=0.03)


def test_inputs_with_the_same_storage_count_once() -> None:
    stranger = t(ROWS, WIDTH, dtype=BF)
    found = cost("add", stranger, stranger, 1)
    assert found.upper_bound
    assert found.bytes == 1.5 * cost("add", BIG, BIG, 1).bytes
