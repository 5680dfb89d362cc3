"""What the process knows, put into a timeline made by hand: rows that no CPU has."""

import msgspec
import numpy as np

from boundby.capture.torch.enrich import enrich_timeline
from boundby.capture.torch.profiler_tree import Detail, Details, Line
from boundby.model import HostKind, OpCall, Timeline
from tests.timelines import US, Scene, tensor

LATER = 1_790_000_000_000_000_003  # between the trace's zero and the process's, past any float


def detail(start_us: int, line: Line | None) -> Detail:
    return Detail(LATER + start_us * US, (tensor(4),), line)


def sources(timeline: Timeline) -> list[str | None]:
    return [timeline.sources[row] if row >= 0 else None for row in timeline.host.source]


def with_columns(timeline: Timeline, **columns: list[int]) -> Timeline:
    arrays = {
        name: np.array(values, getattr(timeline.host, name).dtype)
        for name, values in columns.items()
    }
    return msgspec.structs.replace(timeline, host=msgspec.structs.replace(timeline.host, **arrays))


def test_runtime_call_has_line_of_its_operator_or_builtin() -> None:
    scene = Scene()
    scene.on_host(0, 90, HostKind.PYTHON, "train.py(3): step")
    scene.on_host(10, 20, call=OpCall(name="aten::mul", args=(tensor(4),)))
    scene.on_host(12, 15, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_host(30, 50, HostKind.PYTHON, "<built-in function _cuda_synchronize>")
    scene.on_host(31, 49, HostKind.SYNC, "cudaDeviceSynchronize")
    scene.on_host(60, 61, HostKind.RUNTIME, "cudaEventQuery")
    known = Details({7: detail(10, Line("train.py:5", False))}, {}, {})
    known.operators[7].made.append((0xABC0, 16))
    known.builtins[LATER + 30 * US] = Line("train.py:8", False)
    timeline = with_columns(scene.timeline(), external=[-1, 7, 7, -1, -1, -1])
    refined = enrich_timeline(timeline, known, {})
    assert sources(refined) == [None, "train.py:5", "train.py:5", "train.py:8", "train.py:8", None]
    # Memory is the operator's: what it launches took none.
    assert refined.allocations is not None
    assert refined.allocations.row.tolist() == [1]


def test_compiled_kernel_has_line_of_its_call() -> None:
    """To the trace it is in the frame of a module, whose line is the one it was first met at."""
    scene = Scene()
    scene.on_host(0, 90, HostKind.PYTHON, "train.py(16): <module>")
    scene.on_host(10, 20, call=OpCall(name="cpp_fused_gelu_0", args=(tensor(4),)))
    scene.on_host(30, 40, call=OpCall(name="aten::mul", args=(tensor(4),)))
    known = Details({7: detail(30, Line("train.py:13"))}, {}, {})
    known.builtins[LATER + 10 * US] = Line("train.py:12")
    timeline = with_columns(scene.timeline(), external=[-1, -1, 7])
    assert sources(enrich_timeline(timeline, known, {}))[1:] == ["train.py:12", "train.py:13"]


def test_backward_row_has_the_line_of_its_forward_unless_it_has_its_own() -> None:
    scene = Scene()
    scene.on_host(10, 20, call=OpCall(name="aten::mul", args=(tensor(4),)))
    scene.on_host(30, 40, call=OpCall(name="aten::mul", args=(tensor(4),)))
    scene.on_host(50, 60, call=OpCall(name="aten::add", args=(tensor(4),)))
    known = Details(
        {
            1: detail(10, Line("train.py:5", False)),
            2: detail(30, Line("train.py:9", False)),
            3: detail(50, Line("hooks.py:2", True)),
        },
        {},
        {},
    )
    timeline = with_columns(scene.timeline(), external=[1, 2, 3], forward=[-1, 0, 0])
    assert sources(enrich_timeline(timeline, known, {})) == [
        "train.py:5",
        "train.py:5",
        "hooks.py:2",
    ]


def test_timeline_is_unchanged_without_profiler_tree() -> None:
    scene = Scene()
    scene.on_host(0, 90, HostKind.PYTHON, "train.py(3): step")
    scene.on_host(10, 20, call=OpCall(name="aten::mul", args=(tensor(4),)))
    timeline = with_columns(scene.timeline(), source=[0, 0])
    timeline = msgspec.structs.replace(timeline, sources=["train.py:3"])
    assert sources(enrich_timeline(timeline, Details({}, {}, {}), {})) == [
        "train.py:3",
        "train.py:3",
    ]
