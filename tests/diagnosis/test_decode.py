import msgspec
import pytest

from boundby.diagnosis.decode import decode_limit
from boundby.model import HostKind, Note, OpCall, Timeline
from boundby.model.diagnosis import DecodeLimit
from boundby.model.weights import ModelWeights
from boundby.step.op_record import OpRecord
from tests.machines import round_machine
from tests.timelines import Scene, tensor

MODEL = ModelWeights(name="tiny", layers=2, hidden=64, layers_params=3e6, head_params=1e6)


def step(rows: int, *, passes: int, training: bool = False) -> tuple[Timeline, list[OpRecord]]:
    scene = Scene()
    scene.on_host(
        0,
        10,
        call=OpCall(
            name="aten::mm",
            args=(tensor(rows, 64, dtype="bfloat16"), tensor(64, 192, dtype="bfloat16")),
        ),
    )
    launch = scene.on_host(4, 5, HostKind.LAUNCH, "cudaLaunchKernel")
    if training:
        scene.on_host(11, 12, name="MmBackward0")
    scene.on_device(10, 20, launch=launch)
    records = [
        OpRecord(
            name="aten::sdpa",
            op_class="contraction",
            bound="memory",
            ns=1,
            exposed_ns=1,
            call=0,
            kernel_class="attention",
        )
        for _ in range(2 * passes)
    ]
    return scene.timeline(), records


def limit_of(rows: int, *, passes: int = 1, ranks: int = 1, kind: str = "step") -> DecodeLimit:
    timeline, records = step(rows, passes=passes)
    found = decode_limit(
        MODEL, timeline, records, round_machine(), wall_ns=1e6, kind=kind, ranks=ranks
    )
    assert isinstance(found, DecodeLimit)
    return found


def test_decode_limit_is_bytes_over_memory_bandwidth() -> None:
    bandwidth = round_machine().rate("memory.dram")
    assert bandwidth is not None
    found = limit_of(1)
    assert found.tokens == 1 and found.passes == 1
    assert found.weight_bytes == 4e6 * 2
    assert found.limit_ns == pytest.approx(8e6 / bandwidth * 1e9)
    assert found.share == pytest.approx(found.limit_ns / 1e6)


def test_attention_operators_count_the_passes() -> None:
    assert limit_of(1, passes=3).weight_bytes == 3 * limit_of(1).weight_bytes


def test_ranks_share_the_weights() -> None:
    assert limit_of(1, ranks=4).weight_bytes == limit_of(1).weight_bytes / 4


@pytest.mark.parametrize(
    ("rows", "kind", "training"),
    [(100_000, "step", False), (1, "prefill", False), (1, "step", True)],
)
def test_steps_that_do_not_decode_have_a_note_instead(rows: int, kind: str, training: bool) -> None:
    timeline, records = step(rows, passes=1, training=training)
    found = decode_limit(MODEL, timeline, records, round_machine(), wall_ns=1e6, kind=kind)
    assert isinstance(found, Note)
    assert found.code == "model-not-used"


@pytest.mark.parametrize(
    ("hidden", "wall_ns", "why"), [(96, 1e6, "as wide as tiny"), (64, 1e3, "another model")]
)
def test_config_of_another_model_gives_no_limit(hidden: int, wall_ns: float, why: str) -> None:
    """The step's product is 64 wide; 8 MB take longer than a microsecond."""
    timeline, records = step(1, passes=1)
    model = msgspec.structs.replace(MODEL, hidden=hidden)
    found = decode_limit(model, timeline, records, round_machine(), wall_ns=wall_ns, kind="step")
    assert isinstance(found, Note) and why in found.text
