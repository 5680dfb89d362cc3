"""Reading XLA profiles: planes, programs, steps, instructions, lines."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boundby.capture import sources
from boundby.capture.xplane.assembly import _runs_others
from boundby.capture.xplane.instructions import Executed
from boundby.capture.xplane.source import XplaneSource
from boundby.capture.xplane.trace import XlaTrace, read
from boundby.model import DeviceKind, HostKind, Phase
from boundby.model.errors import BoundbyError
from tests.capture.xplane_files import Event, plane, programs, space
from tests.capture.xplane_profiles import STEPS, graphed, program, written

DATA = Path(__file__).parent.parent / "data" / "xplane"


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> XlaTrace:
    return read(written(tmp_path_factory.mktemp("profile"), graphed()))


def test_a_profile_is_recognised_by_its_content(tmp_path: Path) -> None:
    assert XplaneSource().recognises(written(tmp_path, graphed(), "anything"))
    assert XplaneSource().recognises(written(tmp_path, gzip.compress(graphed()), "packed"))
    assert not XplaneSource().recognises(written(tmp_path, b'{"traceEvents": []}', "json"))
    assert not XplaneSource().recognises(written(tmp_path, b"", "empty"))


def test_steps_begin_at_the_repeated_program(profile: XlaTrace) -> None:
    assert profile.steps_from == "repeating program"
    assert len(profile.steps) == STEPS


def test_kernels_of_a_command_buffer_have_the_instructions_of_their_position(
    profile: XlaTrace,
) -> None:
    timeline = profile.timeline(1)
    device = timeline.device
    assert device.call is not None and device.share is not None
    instructions = [timeline.calls[call].hlo for call in device.call]
    names = [one.name for one in instructions if one is not None]
    # The memset and both kernels are the library's product.
    assert names == ["custom-call.1"] * 3 + ["loop_add_fusion.1", "loop_add_fusion"]
    assert len(set(device.share.tolist())) == 3
    assert device.kind.tolist() == [DeviceKind.MEMSET] + [DeviceKind.KERNEL] * 4
    assert device.graph.all()


def test_lines_scopes_and_phases_come_from_the_program(profile: XlaTrace) -> None:
    timeline = profile.timeline(1)
    device = timeline.device
    assert device.source is not None and device.inside is not None
    assert device.module is not None and device.phase is not None
    lines = [timeline.sources[source] for source in device.source]
    assert lines == ["work/train.py:12"] * 4 + ["work/train.py:60"]
    assert timeline.sources[device.inside[4]] == "optax/_src/update.py:99"
    assert timeline.modules[device.module[1]] == "block.attn"
    assert device.phase.tolist() == [Phase.FORWARD] * 3 + [Phase.BACKWARD, Phase.OTHER]


def test_host_launches_and_waits_are_read(profile: XlaTrace) -> None:
    timeline = profile.timeline(1)
    by_name = dict(
        zip((timeline.names[name] for name in timeline.host.name), timeline.host.kind, strict=True)
    )
    assert by_name["cuGraphLaunch (CudaGraph:3)"] == HostKind.LAUNCH
    assert by_name["np.asarray(jax.Array)"] == HostKind.SYNC
    assert (timeline.device.launch >= 0).all()


def test_memory_of_a_program_is_read(tmp_path: Path) -> None:
    (observation,) = sources.observe(written(tmp_path, graphed()))
    (memory,) = observation.programs
    assert memory.name == "jit_step"
    assert memory.argument_bytes == 16384 + 65536
    assert memory.output_bytes == 65536 + 32768
    assert memory.alias_bytes == 65536
    assert memory.temporary_bytes == 1000
    assert memory.peak_bytes == 16384 + 65536 + 32768 + 1000 + 7
    assert observation.framework == "jax"
    assert observation.device.name == "NVIDIA H200"


def test_step_markers_delimit_steps(tmp_path: Path) -> None:
    marks = [Event("train", at * 1_000_000, 900_000, {"step_num": at}) for at in range(2)]
    kernels = [
        Event("k", at * 1_000_000 + 1000, 500_000, {"hlo_module": "jit_a", "program_id": 1})
        for at in range(2)
    ]
    data = space(
        plane("/device:GPU:0", {"Stream #1(Compute)": kernels}),
        plane("/host:CPU", {"python": marks}),
    )
    trace = read(written(tmp_path, data))
    assert trace.steps_from == "markers"
    assert [step.label for step in trace.steps] == ["train 0", "train 1"]


def test_enclosing_tpu_instructions_are_not_counted(tmp_path: Path) -> None:
    runs, instructions = [], []
    for at in range(2):
        start = at * 1_000_000
        runs.append(Event("jit_step(7)", start, 900_000, {}))
        instructions += [
            Event("%while.1 = (s32[]) while(...)", start, 800_000, {}),
            Event("%custom-call.1 = bf16[64,256] custom-call(...)", start + 100_000, 600_000, {}),
        ]
    data = space(
        programs({"jit_step(7)": program()}),
        plane("/device:TPU:0", {"XLA Modules": runs, "XLA Ops": instructions}),
    )
    trace = read(written(tmp_path, data))
    timeline = trace.timeline(0)
    names = [timeline.names[name] for name in timeline.device.name]
    assert names == ["while.1", "custom-call.1", "while.1"]
    assert timeline.device.duration_ns.tolist() == [100_000, 600_000, 100_000]
    assert timeline.device_kind == "tpu"
    assert timeline.device.call is not None
    assert timeline.calls[timeline.device.call[1]].name == "hlo::gemm"


def test_loop_with_instruction_events_is_not_counted_twice() -> None:
    body = SimpleNamespace(nodes=[SimpleNamespace(id=3), SimpleNamespace(id=4)])
    module: Any = SimpleNamespace(called_by=lambda _: [body])
    node: Any = SimpleNamespace(id=1)
    loop = Executed(module, node, 0)
    assert _runs_others(loop, {(id(module), 1), (id(module), 4)})
    assert not _runs_others(loop, {(id(module), 1), (id(body), 4)})


def test_a_damaged_file_is_reported_with_its_offset(tmp_path: Path) -> None:
    data = graphed()
    with pytest.raises(BoundbyError, match=rf"damaged or cut short at byte \d+ of {len(data) - 9}"):
        read(written(tmp_path, data[:-9]))
    with pytest.raises(BoundbyError, match="gzip data is cut short"):
        read(written(tmp_path, gzip.compress(data)[:-40]))
    with pytest.raises(BoundbyError, match="no device events"):
        read(written(tmp_path, space(plane("/host:CPU", {}))))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.floats(0.2, 1),
    whole=st.booleans(),
)
def test_damaged_files_are_read_or_give_a_one_line_error(
    tmp_path: Path, changes: list[tuple[float, int]], cut: float, whole: bool
) -> None:
    data = bytearray(graphed())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = written(tmp_path, bytes(data if whole else data[: int(cut * len(data))]))
    try:
        sources.observe(path)
    except BoundbyError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(("name", "steps", "kernels"), [("decode", 8, 222), ("sync_host", 2, 48)])
def test_h200_profiles_are_read(name: str, steps: int, kernels: int) -> None:
    trace = read(DATA / f"{name}.xplane.pb.gz")
    timeline = trace.timeline()
    assert len(trace.steps) == steps
    assert len(timeline.device) == kernels
    assert timeline.device.call is not None
    computed = timeline.device.kind == DeviceKind.KERNEL
    assert (timeline.device.call[computed] >= 0).all()


def test_time_without_events_is_a_separate_row(tmp_path: Path) -> None:
    rows = []
    for at in range(2):
        noted: dict[str, int | str] = {
            "hlo_op": "custom-call.1",
            "hlo_module": "jit_step",
            "program_id": 7,
            "run_id": -5 - at,
        }
        start = at * 1_000_000
        rows += [
            Event("ThunkExecutor::Execute", start, 900_000, {}),
            Event("custom-call.1", start + 100_000, 300_000, noted),
            Event("custom-call.1", start + 400_000, 300_000, noted),
        ]
    data = space(
        programs({"jit_step(7)": program()}),
        plane("/host:CPU", {"tf_XLAPjRtCpuClient/1": rows}),
    )
    trace = read(written(tmp_path, data))
    timeline = trace.timeline(0)
    device = timeline.device
    assert timeline.device_kind == "cpu"
    names = [timeline.names[name] for name in device.name]
    assert names == ["no operator event", "custom-call.1", "custom-call.1", "no operator event"]
    assert device.duration_ns.tolist() == [100_000, 300_000, 300_000, 200_000]
    assert device.call is not None
    assert (device.call < 0).tolist() == [True, False, False, True]
    assert "operators-not-recorded" in [note.code for note in timeline.notes]
