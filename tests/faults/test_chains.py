"""What a compiler makes one kernel of: its traffic and its time, by hand."""

from __future__ import annotations

import msgspec
import pytest

from boundby.faults import layout_copies, materialised_attention, unfused_operators
from boundby.faults.repeated_heads import repeats
from boundby.model import Argument, HostKind, OpCall, Phase, Tensor, Timeline
from boundby.step.fusion_groups import Chain, chains_of
from boundby.step.model import StepModel
from tests.faults.step_models import in_phase, step_model_of
from tests.step.test_dataflow import BYTES, ELEMENTS, at, chain
from tests.timelines import Scene

SQUARE = (8192, 8192)
Step = tuple[str, tuple[Argument, ...], int]


def there_and_back(forward: list[Step], backward: list[Step]) -> StepModel:
    """Some operators in the forward, some in the backward."""
    timeline = chain(*forward, *backward)
    return step_model_of(backward_from(timeline, len(forward)))


def backward_from(timeline: Timeline, operator: int) -> Timeline:
    rows = [row for row in range(len(timeline.host)) if timeline.host.call[row] >= 0]
    return in_phase(timeline, Phase.BACKWARD, slice(rows[operator], None))


def chains(step_model: StepModel) -> list[Chain]:
    flow = step_model.flow
    assert flow is not None
    found = [one for one in chains_of(step_model, flow) if len(one.op_records) > 1]
    return sorted(found, key=lambda one: min(map(flow.order.index, one.op_records)))


def test_values_read_only_by_backward_are_recomputed() -> None:
    """The product's result is there anyway: nothing is written for the backward."""
    step_model = there_and_back(
        [
            ("mm", (at(1, shape=SQUARE), at(2, shape=SQUARE)), 3),
            ("exp", (at(3, shape=SQUARE),), 4),
            ("mul", (at(4, shape=SQUARE), 2.0), 5),
            ("mm", (at(5, shape=SQUARE), at(2, shape=SQUARE)), 6),
        ],
        [
            ("mm", (at(6, shape=SQUARE), at(2, shape=SQUARE)), 7),
            ("mul", (at(7, shape=SQUARE), 2.0), 8),
            ("mul", (at(8, shape=SQUARE), at(4, shape=SQUARE)), 9),
            ("mm", (at(9, shape=SQUARE), at(2, shape=SQUARE)), 10),
        ],
    )
    forward, backward = chains(step_model)
    # In: the first product's result. Out: what the second reads. Not the exponential.
    assert forward.bytes == 2 * BYTES
    # Read: the gradient and the first product's result. Written: a gradient.
    assert backward.bytes == 3 * BYTES


def test_operators_of_the_loader_are_not_fused() -> None:
    timeline = chain(
        ("exp", (at(1),), 2),
        ("mul", (at(2), 2.0), 3),
        ("mm", (at(3, shape=SQUARE), at(9, shape=SQUARE)), 4),
        ("exp", (at(4),), 5),
        ("mul", (at(5), 2.0), 6),
    )
    assert len(chains(step_model_of(timeline))) == 2
    rows = [row for row in range(len(timeline.host)) if timeline.host.call[row] >= 0]
    kind = timeline.host.kind.copy()
    kind[rows[0]] = HostKind.DATA
    parent = timeline.host.parent.copy()
    parent[rows[1]] = rows[0]
    host = msgspec.structs.replace(timeline.host, kind=kind, parent=parent)
    (in_the_model,) = chains(step_model_of(msgspec.structs.replace(timeline, host=host)))
    assert in_the_model.op_records == [3, 4]


def test_value_smaller_than_its_inputs_is_kept_for_backward() -> None:
    """Three tensors would be read to make one again: writing and reading it is less."""
    step_model = there_and_back(
        [
            ("add", (at(1), at(2)), 4),
            ("add", (at(4), at(3)), 5),
            ("mm", (at(5, shape=SQUARE), at(9, shape=SQUARE)), 6),
        ],
        [
            ("mm", (at(6, shape=SQUARE), at(9, shape=SQUARE)), 7),
            ("mul", (at(7), at(4)), 8),
            ("mul", (at(8), 2.0), 10),
            ("mm", (at(10, shape=SQUARE), at(9, shape=SQUARE)), 11),
        ],
    )
    assert [one.bytes for one in chains(step_model)] == [5 * BYTES, 3 * BYTES]


def test_random_values_are_kept_for_backward() -> None:
    step_model = there_and_back(
        [
            ("native_dropout", (at(1), 0.1, True), 2),
            ("exp", (at(2),), 3),
            ("mm", (at(3, shape=SQUARE), at(9, shape=SQUARE)), 4),
        ],
        [
            ("mm", (at(4, shape=SQUARE), at(9, shape=SQUARE)), 5),
            ("mul", (at(5), at(2)), 6),
            ("neg", (at(6),), 7),
            ("mm", (at(7, shape=SQUARE), at(9, shape=SQUARE)), 8),
        ],
    )
    # In one, out what was dropped for the backward and what the product reads.
    assert [one.bytes for one in chains(step_model)] == [3 * BYTES, 3 * BYTES]


@pytest.mark.parametrize(
    ("over", "passes"), [((0,), 2), ((1,), 1), ((-1,), 1), ((0, 1), 2), (None, 2)]
)
def test_sums_over_columns_read_once_more(over: tuple[int, ...] | None, passes: int) -> None:
    given: tuple[Argument, ...] = (at(2, shape=SQUARE), over, True) if over else (at(2),)
    step_model = step_model_of(chain(("exp", (at(1, shape=SQUARE),), 2), ("sum", given, 3)))
    (one,) = chains(step_model)
    assert one.bytes == passes * BYTES


def test_scattered_additions_are_not_fused() -> None:
    steps = [
        ("exp", (at(1),), 2),
        ("upsample_bilinear2d_backward", (at(2),), 3),
        ("mul", (at(3), 2.0), 4),
    ]
    assert chains(step_model_of(chain(*steps))) == []


def test_random_numbers_of_generated_code_take_their_arithmetic() -> None:
    steps = [("native_dropout", (at(1), 0.1, True), 2), ("exp", (at(2),), 3)]
    reader = ("mm", (at(3, shape=SQUARE), at(9, shape=SQUARE)), 4)
    detection = unfused_operators.detect(step_model_of(chain(*steps, reader, each_us=2000.0)))
    assert detection is not None
    # 70 instructions each at a quarter of 50 TFLOP/s; in and out at 5 TB/s.
    chance, traffic = ELEMENTS * 70 / 12.5e12 * 1e9, 2 * BYTES / 5e12 * 1e9
    assert sum(detection.high.op_ns.values()) == pytest.approx(max(chance, traffic))
    expected = sum(detection.expected.op_ns.values())
    assert chance + traffic <= expected <= chance + traffic / 0.4


IMAGES = Tensor(shape=(32, 256, 56, 56), dtype="bfloat16", strides=(802816, 3136, 56, 1), storage=1)


def test_all_convolutions_change_layout_on_a_cpu() -> None:
    """A grouped one too; at worst that gains nothing, since timings alone are at another pace."""
    kernel = Tensor(shape=(256, 32, 3, 3), dtype="bfloat16", storage=9)
    timeline = chain(
        ("convolution", (IMAGES, kernel), 2),
        ("relu", (at(2),), 3),
        ("mul", (at(3), 2.0), 4),
        on_device=False,
    )
    step_model = step_model_of(timeline)
    assert layout_copies.compiled_times(step_model) == {}
    step_model.timings.results |= {
        one: 40.0 if _is_last(one.args[0]) else 100.0 for one in step_model.timings.requested
    }
    ((index, ns),) = layout_copies.compiled_times(step_model).items()
    eager = step_model.op_records[index].ns
    assert ns == pytest.approx(0.4 * eager)
    detection = unfused_operators.detect(step_model)
    assert detection is not None
    assert detection.expected.op_ns[index] == pytest.approx(ns)
    assert detection.low.op_ns[index] == pytest.approx(eager)


@pytest.mark.parametrize(
    ("weights", "turned"),
    [
        ((256, 256, 3, 3), True),
        ((256, 32, 3, 3), False),  # grouped
        ((256, 1, 3, 3), True),  # each channel on its own
        ((128, 256, 3, 3), False),  # half as many out as in
        ((128, 256, 1, 1), True),
    ],
)
def test_convolution_layout_is_changed_by_the_compiler(
    weights: tuple[int, ...], turned: bool
) -> None:
    kernel = Tensor(shape=weights, dtype="bfloat16", storage=9)
    timeline = chain(
        ("convolution", (IMAGES, kernel), 2),
        ("relu", (at(2),), 3),
        ("mul", (at(3), 2.0), 4),
    )
    step_model = step_model_of(timeline)
    assert layout_copies.compiled_times(step_model) == {}
    asked = [one for one in step_model.timings.requested if "convolution" in one.name]
    assert bool(asked) is turned
    step_model.timings.results |= {
        one: 40.0 if _is_last(one.args[0]) else 100.0 for one in step_model.timings.requested
    }
    times = layout_copies.compiled_times(step_model)
    assert list(times.values()) == pytest.approx([0.4 * 110e3] if turned else [])
    detection = unfused_operators.detect(step_model)
    assert detection is not None
    assert detection.low.unfusible == detection.high.unfusible == frozenset(times)
    # Turned once, it is not turned again.
    fixed = layout_copies.detect(step_model.apply(detection.expected))
    assert (fixed is None) is turned


@pytest.mark.parametrize("given", [(), (IMAGES,)])
def test_convolution_without_recorded_weights_is_skipped(
    given: tuple[Argument, ...],
) -> None:
    step_model = step_model_of(chain(("convolution", given, 2), ("relu", (at(2),), 3)))
    assert layout_copies.compiled_times(step_model) == {}


@pytest.mark.parametrize("axes", [3, 4])
def test_sequences_stored_as_images_are_not_images(axes: int) -> None:
    """As `Conv1d` on a CPU: three axes outside, four inside."""
    scene = Scene(end=300)
    images, weights = Tensor(shape=(16, 128, 1, 1024), dtype="float32"), (256, 128, 1, 1)
    images = msgspec.structs.replace(images, strides=(131072, 1024, 1024, 1))
    given = msgspec.structs.replace(images, shape=(16, 128, 1024)) if axes == 3 else images
    kernel = Tensor(shape=weights, dtype="float32")
    scene.on_host(0, 200, call=OpCall(name="aten::convolution", args=(given, kernel)))
    scene.on_host(5, 195, call=OpCall(name="aten::mkldnn_convolution", args=(images, kernel)))
    step_model = step_model_of(scene.timeline())
    assert (layout_copies.detect(step_model) is None) == (axes == 3)
    layout_copies.compiled_times(step_model)
    assert bool(step_model.timings.requested) == (axes == 4)


def _is_last(images: object) -> bool:
    return isinstance(images, Tensor) and images.strides is not None and images.strides[1] == 1


WIDE = (2, 4, 4, 1024, 64)
REPEATED = Tensor(shape=WIDE, dtype="float32", strides=(262144, 65536, 0, 64, 1), storage=1)
NARROW = Tensor(shape=WIDE, dtype="float32", strides=(1048576, 262144, 65536, 64, 1), storage=1)


@pytest.mark.parametrize(("source", "shared"), [(REPEATED, True), (NARROW, False)])
def test_keys_shared_by_heads_are_not_repeated(source: Tensor, shared: bool) -> None:
    """Four heads read each key: the copy goes, and so does the sum of their gradients."""
    wide = at(2, shape=WIDE)
    step_model = there_and_back(
        [
            ("copy_", (wide, source), 2),
            ("copy_", (at(3, "bfloat16", WIDE), wide), 3),
            ("bmm", (at(4, "bfloat16", (32, 1024, 64)), at(3, "bfloat16", (32, 64, 1024))), 5),
        ],
        [
            ("copy_", (at(7, shape=WIDE), at(6, "bfloat16", WIDE)), 7),
            ("sum", (at(7, shape=WIDE), (2,), False), 8),
        ],
    )
    assert step_model.flow is not None
    copy, cast, _, cast_back, total = step_model.flow.order
    found = repeats(step_model, {(32, 1024): 1})
    assert found.gone == ({copy, total} if shared else frozenset())
    assert found.larger == ({cast: 4, cast_back: 4} if shared else {})
    # Not those of another attention.
    assert repeats(step_model, {(32, 512): 1}).gone == frozenset()


def test_the_change_names_shared_heads() -> None:
    scores = at(6, "bfloat16", (2, 16, 1024, 1024))
    key = at(3, "bfloat16", (32, 64, 1024))
    timeline = chain(
        ("copy_", (at(2, shape=WIDE), REPEATED), 2),
        ("bmm", (at(4, "bfloat16", (32, 1024, 64)), key), 6),
        ("_softmax", (scores, -1, False), 7),
    )
    detection = materialised_attention.detect(step_model := step_model_of(timeline))
    assert detection is not None and "enable_gqa=True" in detection.change
    assert step_model.flow is not None
    copy = step_model.flow.order[0]
    assert detection.expected.op_ns[copy] == 0.0 and copy not in detection.low.op_ns
