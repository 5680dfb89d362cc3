"""From trace files to diagnoses, on real traces."""

import gzip
import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

import boundby
from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.model.estimate import Estimate
from boundby.model.finding import ChipRow
from boundby.report.terminal import DiagnosisReport
from boundby.session import traces as job
from tests.machines import round_machine

H200 = Path(__file__).parents[1] / "data" / "h200"
SHARED = Path(__file__).parents[3] / "shared" / "traces"
SYNCS = H200 / "bad_mlp_syncs.json.gz"


def total_ns(diagnosis: Diagnosis) -> float:
    return sum(group.ns for group in diagnosis.account.groups().values())


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip("the shared traces are not here")
    return path


def test_account_of_a_trace_adds_up_and_names_its_machine() -> None:
    diagnosis = boundby.load(SYNCS)
    assert total_ns(diagnosis) == pytest.approx(diagnosis.step.wall_ns)
    assert diagnosis.machine.chip == "H200 SXM"
    assert diagnosis.machine.roofs[0].source == "datasheet"
    assert diagnosis.step.wall_source == "profiled"
    low, high = diagnosis.step.wall_interval_ns
    assert low < 14.6e6 < high, "the clean step lies in the interval"
    assert diagnosis.account.overhead.parts["sync"] > 0


@pytest.mark.parametrize("trace", sorted(H200.glob("*.gz")), ids=lambda path: path.name)
@pytest.mark.parametrize("wall_ns", [None, 14.6e6])
def test_source_lines_of_a_trace_add_up_to_its_account(trace: Path, wall_ns: float | None) -> None:
    diagnosis = boundby.load(trace, wall_ns=wall_ns)
    assert sum(row.ns for row in diagnosis.lines) == pytest.approx(diagnosis.step.wall_ns)
    for part, ns in diagnosis.account.overhead.parts.items():
        at_lines = sum(row.parts.get(part, 0.0) for row in diagnosis.lines)
        assert at_lines == pytest.approx(ns, abs=1.0)
    assert diagnosis.lines[0].where.startswith("probe2.py:")
    assert diagnosis.lines[0].share > 0.95


def test_given_wall_time_sets_the_step_time() -> None:
    diagnosis = boundby.load(SYNCS, wall_ns=14.6e6)
    assert diagnosis.step.wall_ns == 14.6e6
    assert diagnosis.step.wall_source == "clean"
    assert total_ns(diagnosis) == pytest.approx(14.6e6)
    assert diagnosis.step.device_busy_ns == pytest.approx(2.83e6, rel=0.02)
    assert diagnosis.verdict.bound_by == "overhead"


@pytest.mark.parametrize(
    ("trace", "fault", "where"),
    [
        ("v100_resnet50_dataloader_workers4", "pageable-copies", "resnet50_profiler_api.py:44"),
        ("v100_resnet50_dataloader_workers4", "zeroed-gradients", "resnet50_profiler_api.py:49"),
        ("mi300x_resnet_activation_checkpointing", "wasteful-checkpointing", "train_ddp.py:82"),
        ("mi300x_resnet_activation_checkpointing", "exposed-collectives", "train_ddp.py:82"),
        ("dlrm_8_ranks/worker0", "exposed-collectives", None),
    ],
)
def test_faults_of_public_traces_are_found(trace: str, fault: str, where: str | None) -> None:
    diagnosis = boundby.load(shared(f"public/{trace}.json.gz"))
    (finding,) = [one for one in diagnosis.findings if one.fault == fault]
    assert finding.where == ([where] if where else [])
    saving = finding.saving_ns
    assert 0 <= saving.low <= saving.expected <= saving.high < 0.5 * diagnosis.step.wall_ns
    # None of these is what such a step should be mended for first.
    assert saving.expected < 0.1 * diagnosis.step.wall_ns


def test_step_at_its_roofs_gets_faster_chips() -> None:
    saving = Estimate(low=2e6, expected=3e6, high=4e6)
    chips = [ChipRow(chip="B200", wall_ns=saving)]
    diagnosis = msgspec.structs.replace(boundby.load(SYNCS), bigger_chips=chips)
    text = " ".join(str(diagnosis).split())
    assert "at the roofline: " in text
    assert "B200 3.0 ms (2.0 to 4.0)" in text


def test_combinations_are_relative_to_the_simulated_step() -> None:
    diagnosis = boundby.load(SYNCS)
    unmended, *mended = diagnosis.what_if
    assert unmended.faults == []
    assert sum(unmended.groups.values()) == pytest.approx(unmended.wall_ns.expected)
    savings = {finding.fault: finding.saving_ns.expected for finding in diagnosis.findings}
    singles = [entry for entry in mended if len(entry.faults) == 1]
    assert singles
    for entry in singles:
        left = unmended.wall_ns.expected - savings[entry.faults[0]]
        assert entry.wall_ns.expected == pytest.approx(left, rel=1e-6)


def test_printed_diagnosis_is_its_report() -> None:
    text = str(boundby.load(SYNCS))
    assert text.splitlines()[0].startswith("Overhead-bound")
    assert "roofs from the H200 SXM datasheet" in " ".join(text.split())


def test_slowest_rank_and_waiting_ranks_are_reported(tmp_path: Path) -> None:
    """Three ranks' all-reduces take 30, 30 and 10 us: the third came last, the others waited."""
    for rank, duration in enumerate((30.0, 30.0, 10.0)):
        _write_rank(tmp_path / f"rank{rank}.json", rank, duration)
    diagnosis = boundby.load(tmp_path)
    waits = {row.rank: row.waiting_ns for row in diagnosis.ranks}
    assert waits == pytest.approx({0: 20_000, 1: 20_000, 2: 0})
    assert [row.name for row in diagnosis.ranks] == ["rank0.json", "rank1.json", "rank2.json"]
    assert diagnosis.target is not None
    assert diagnosis.target.endswith("rank2.json"), "the job is diagnosed at the rank it waits for"
    assert diagnosis.ranks[0].exposed_ns == pytest.approx(30_000)


def test_broken_file_does_not_lose_the_others(tmp_path: Path) -> None:
    _write_rank(tmp_path / "rank0.json", 0, 30.0)
    (tmp_path / "rank1.json").write_text("not a trace")
    diagnosis = boundby.load(tmp_path)
    assert [row.problem is None for row in diagnosis.ranks] == [True, False]
    assert any("rank1.json" in note.text for note in diagnosis.notes)


def test_files_that_are_no_traces_are_no_ranks(tmp_path: Path) -> None:
    _write_rank(tmp_path / "rank0.json", 0, 30.0)
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    diagnosis = boundby.load(tmp_path)
    assert diagnosis.ranks == []
    (note,) = (note for note in diagnosis.notes if note.code == "other-files")
    assert "config.json" in note.text


def test_views_beside_an_xla_profile_are_no_ranks(tmp_path: Path) -> None:
    (tmp_path / "host.xplane.pb").write_bytes(b"")
    (tmp_path / "host.trace.json.gz").write_bytes(b"")
    (tmp_path / "host.memory_profile.json.gz").write_bytes(b"")
    assert [path.name for path in job.find_traces([tmp_path])] == ["host.xplane.pb"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("report.nsys-rep", "x", "export it first: nsys export --type sqlite report.nsys-rep"),
        ("empty.json", "", "empty.json"),
        ("prose.json", "hello", "prose.json"),
        ("picture.png", "\x89PNG", "not a format"),
    ],
)
def test_file_that_is_not_a_trace_is_a_one_line_error(
    tmp_path: Path, name: str, content: str, complaint: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BoundbyError) as caught:
        boundby.load(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folder_without_traces_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(BoundbyError, match="no trace files"):
        job.find_traces([tmp_path])


def test_a_loader_without_workers_is_seen_as_waiting_for_data() -> None:
    alone = boundby.load(shared("public/v100_resnet50_dataloader_workers0.json.gz"))
    four = boundby.load(shared("public/v100_resnet50_dataloader_workers4.json.gz"))
    waiting = alone.account.overhead.parts["data"]
    assert waiting == max(alone.account.overhead.parts.values())
    assert four.account.overhead.parts["data"] < waiting / 10


def test_graph_replays_are_not_called_host_bound() -> None:
    diagnosis = boundby.load(shared("public/mi300x_vllm_piecewise_graphs.json.gz"))
    assert diagnosis.verdict.bound_by != "overhead"
    assert diagnosis.account.overhead.share < 0.05


@pytest.mark.parametrize(
    ("name", "clean_ms", "busy_ms"),
    [
        ("bert_large_bf16_eager", 84.2, 61.5),
        ("bert_large_bf16_compiled", 71.6, 37.5),
        ("bert_base_b1_overhead", 52.2, 5.8),
        ("bad_mlp_syncs", 14.6, 2.8),
        ("gpt2xl_decode", 187, None),
    ],
)
def test_own_traces_agree_with_their_clean_steps(
    name: str, clean_ms: float, busy_ms: float | None
) -> None:
    diagnosis = boundby.load(shared(f"h200/{name}.json.gz"))
    low, high = diagnosis.step.wall_interval_ns
    assert low <= clean_ms * 1e6 <= high
    if busy_ms is not None:
        assert diagnosis.step.device_busy_ns == pytest.approx(busy_ms * 1e6, rel=0.02)


def test_every_shared_trace_gives_an_account_or_one_line() -> None:
    paths = sorted(shared("public").iterdir())
    assert paths
    for path in paths:
        try:
            diagnosis = boundby.load(path)
        except BoundbyError as error:
            assert "\n" not in str(error)
            continue
        assert total_ns(diagnosis) == pytest.approx(diagnosis.step.wall_ns), path.name


def _write_rank(
    path: Path,
    rank: int,
    duration_us: float,
    *,
    kernel: str = "ncclDevKernel_AllReduce",
    frame: str = "train.py(3): step",
) -> None:
    """A step of one launch and one all-reduce."""
    events = [
        _event("ProfilerStep#1", "user_annotation", 0, 100),
        _event(frame, "python_function", 1, 90),
        _event("mylib::reduce", "cpu_op", 4, 10),
        _event("cudaLaunchKernel", "cuda_runtime", 5, 5, correlation=1),
        _event(kernel, "kernel", 20, duration_us, correlation=1, stream=7),
    ]
    content = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3},
        "traceEvents": events,
    }
    path.write_text(json.dumps(content))


def _event(
    name: str, category: str, start: float, duration: float, **args: int
) -> dict[str, object]:
    event: dict[str, object] = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1}
    return event | {"ts": start, "dur": duration, "args": args}


def test_names_are_data_and_never_markup(tmp_path: Path) -> None:
    """Closing a tag that is not open makes rich fail; colons around a word make it an emoji."""
    evil = "[/red] [bold]x :smile: \x1b[31m"
    path = tmp_path / "evil.json"
    _write_rank(path, 0, 30.0, kernel=f"ncclDevKernel {evil}", frame=f"a {evil}.py(3): f")
    diagnosis = boundby.load(path)
    console = Console(file=io.StringIO(), width=200, color_system=None)  # markup and emoji on
    console.print(DiagnosisReport(diagnosis))
    written = console.file
    assert isinstance(written, io.StringIO)
    text = written.getvalue()
    assert "[bold]x :smile:" in text
    assert "red] [bold]x :smile:" in next(row.where for row in diagnosis.lines)
    assert "\x1b" not in text


def test_truncated_gzip_is_read_up_to_its_end(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(gzip.decompress(SYNCS.read_bytes()))[:-40_000])
    diagnosis = boundby.load(cut)
    assert "truncated-file" in [note.code for note in diagnosis.notes]


def test_compiled_step_with_a_busy_device_has_no_overhead_finding() -> None:
    """BERT-large, compiled: 37.6 ms of device work in a clean step of about 40 ms."""
    diagnosis = boundby.load(shared("h200/bert_large_bf16_compiled.json.gz"), wall_ns=40e6)
    assert diagnosis.verdict.bound_by == "bandwidth"
    savings = {one.fault: one.saving_ns.expected for one in diagnosis.findings}
    # No graph holds it: between its 2,097 kernels the device stands still, 2.4 ms in all.
    assert savings.pop("eager-launches", 0.0) <= diagnosis.step.wall_ns - 37.5e6
    assert max(savings.values(), default=0.0) <= 0.05 * diagnosis.step.wall_ns


def test_trace_kept_by_run_uses_the_roofs_of_its_machine(tmp_path: Path) -> None:
    kept = tmp_path / "trace.json"
    kept.write_bytes(gzip.decompress(SYNCS.read_bytes()))
    store.write(round_machine(), tmp_path / "machine.json")
    assert boundby.load(kept).machine == round_machine()
