"""Steps that replay CUDA graphs cost what the same steps cost without them."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from boundby.model.diagnosis import Diagnosis

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.gpu

MODEL = """
import sys
import torch
torch.manual_seed(0)
how = sys.argv[1]
torch.backends.mha.set_fastpath_enabled(False)
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().bfloat16()
x = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)
"""
TRAINING = """
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
modes = {"compiled": "default", "reduce-overhead": "reduce-overhead"}
if how in modes:
    model = torch.compile(model, mode=modes[how])
def work():
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
if how == "graph":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
for _ in range(400):
    graph.replay() if how == "graph" else work()
    optimizer.step()
"""
# Two graphs of the same operators on other shapes: which one is replayed must be known.
DECODING = """
model.eval()
graphs = {}
with torch.no_grad():
    inputs = {rows: x[:rows].clone() for rows in (2, 16)}
    for rows, given in inputs.items():
        for _ in range(3):
            model(given)
        torch.cuda.synchronize()
        graphs[rows] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[rows]):
            model(given)
    for _ in range(600):
        graphs[16].replay() if how == "graph" else model(inputs[16])
        torch.cuda.synchronize()
"""


def diagnosed(folder: Path, source: str, how: str) -> Diagnosis:
    script, target = folder / "script.py", folder / f"{how}.json"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "boundby", "run", "--json", str(target), str(script), how],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Execution Trace" not in done.stderr
    assert "failed" not in done.stderr, done.stderr
    return msgspec.json.decode(target.read_bytes(), type=Diagnosis)


def totals(diagnosis: Diagnosis) -> dict[str, float]:
    return {
        "flops": sum(row.flops or 0 for row in diagnosis.ops),
        "bytes": sum(row.bytes or 0 for row in diagnosis.ops),
    }


def unknown(diagnosis: Diagnosis) -> float:
    """Of the time that the device works."""
    return diagnosis.account.unknown.ns / (diagnosis.step.device_busy_ns or 1)


@pytest.mark.parametrize(("how", "without"), [("graph", "eager"), ("reduce-overhead", "compiled")])
def test_captured_training_step_is_matched(tmp_path: Path, how: str, without: str) -> None:
    graphed, plain = (diagnosed(tmp_path, MODEL + TRAINING, one) for one in (how, without))
    assert unknown(graphed) < 0.03, [row for row in graphed.ops if row.bound == "unknown"]
    assert totals(graphed)["flops"] == pytest.approx(totals(plain)["flops"], rel=0.01)
    assert totals(graphed)["bytes"] == pytest.approx(totals(plain)["bytes"], rel=0.03)


def test_replayed_graph_is_identified_among_similar_ones(tmp_path: Path) -> None:
    graphed, plain = (diagnosed(tmp_path, MODEL + DECODING, one) for one in ("graph", "eager"))
    assert unknown(graphed) < 0.03
    assert totals(graphed)["flops"] == pytest.approx(totals(plain)["flops"], rel=0.01)
    assert totals(graphed)["bytes"] == pytest.approx(totals(plain)["bytes"], rel=0.02)


def test_capture_does_not_change_later_steps(tmp_path: Path) -> None:
    """A capture that was noted has started nothing that slows its process for good.

    A profiler of the device does, by some 40% on steps that wait for the host, as these do.
    """
    source = (
        MODEL
        + """
import tempfile, time
from pathlib import Path
from boundby.capture.torch.graph_recorder import GraphRecorder
notes = GraphRecorder(torch, Path(tempfile.mkdtemp()))
model.eval()
def eager():
    with torch.no_grad():
        model(x[:1])
def seconds():
    for _ in range(20):
        eager()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(100):
        eager()
    torch.cuda.synchronize()
    return time.perf_counter() - began
def capture(noted):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if noted:
            notes.capture_began(graph)
        eager()
        if noted:
            notes.capture_ends(graph)
eager()
capture(False)
before = min(seconds() for _ in range(9))
capture(True)
after = min(seconds() for _ in range(9))
assert notes.close()[0] and not notes.failed, notes.failed
print(before, after)
assert after < 1.1 * before, (before, after)
"""
    )
    (tmp_path / "script.py").write_text(source)
    subprocess.run(
        [sys.executable, "script.py", "-"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"},
        check=True,
    )
