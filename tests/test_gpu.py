"""What only a CUDA device can show; run with scripts/gpu_tests.sh."""

import contextlib
import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import boundby
from boundby.model.diagnosis import Diagnosis
from boundby.report.proofs import best_of

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def slow_mlp(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    return diagnosed(ROOT / "examples" / "slow_mlp.py", tmp_path_factory.mktemp("run"))


def diagnosed(script: Path, folder: Path) -> Diagnosis:
    target = folder / "diagnosis.json"
    subprocess.run(
        [sys.executable, "-m", "boundby", "run", "--quiet", "--json", str(target), str(script)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"},
        check=True,
    )
    return msgspec.json.decode(target.read_bytes(), type=Diagnosis)


def test_account_adds_up_to_the_clean_step(slow_mlp: Diagnosis) -> None:
    total = sum(group.ns for group in slow_mlp.account.groups().values())
    assert total == pytest.approx(slow_mlp.step.wall_ns)
    assert slow_mlp.step.wall_source == "clean"
    assert slow_mlp.account.unknown.share < 0.03
    assert 0 < (slow_mlp.step.device_busy_ns or 0) < slow_mlp.step.wall_ns


def test_slow_script_is_overhead_bound(slow_mlp: Diagnosis) -> None:
    assert slow_mlp.verdict.bound_by == "overhead"
    assert slow_mlp.account.overhead.parts["sync"] > 0
    assert slow_mlp.account.bandwidth.parts["host_link"] > 0
    faults = [finding.fault for finding in slow_mlp.findings]
    assert "unfused-optimizer" in faults
    assert "host-sync" in faults


def test_source_lines_add_up_to_the_step(slow_mlp: Diagnosis) -> None:
    assert sum(line.ns for line in slow_mlp.lines) == pytest.approx(slow_mlp.step.wall_ns, rel=1e-3)
    places = {line.where.rpartition("/")[2]: line for line in slow_mlp.lines}
    (reading,) = [line for line in places.values() if ".item()" in (line.text or "")]
    assert reading.parts.get("sync", 0.0) > 0


TUNED = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.project(self.before(x)).view(b, n, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, c))
        return x + self.down(F.gelu(self.up(self.after(x))))
model = nn.Sequential(*[Block() for _ in range(8)]).cuda().bfloat16()
model = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(32, 1024, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(200):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_well_tuned_step_has_no_finding(tmp_path: Path) -> None:
    """Compiled into graphs, fused, in sixteen bits, on fused attention, with a large batch."""
    (tmp_path / "train.py").write_text(TUNED)
    diagnosis = diagnosed(tmp_path / "train.py", tmp_path)
    wall = diagnosis.step.wall_ns
    of_step = [one for one in diagnosis.findings if one.relative_to == "step"]
    shares = {one.fault: one.saving_ns.expected / wall for one in of_step}
    assert all(share <= 0.05 for share in shares.values()), shares


COMPILED = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
    def forward(self, x):
        y = self.up(x)
        y = torch.nn.functional.gelu(y)
        return self.down(y) + x
model = torch.compile(Net().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(200):
    loss = model(torch.randn(8192, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_compiled_matmuls_have_lines_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPILED)
    diagnosis = diagnosed(tmp_path / "train.py", tmp_path)
    assert diagnosis.account.unknown.share < 0.03
    shares = {line.where: line.share for line in diagnosis.lines}
    assert shares["train.py:8"] > 0.1 and shares["train.py:10"] > 0.1, shares


def test_simulation_explains_the_step(slow_mlp: Diagnosis) -> None:
    assert slow_mlp.step.replay_error is not None
    assert abs(slow_mlp.step.replay_error) < 0.25


def test_large_matmul_is_compute_bound_and_below_its_roof() -> None:
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    diagnosis = boundby.diagnose(lambda: [a @ b for _ in range(10)], warmup=3, steps=5)
    assert diagnosis.verdict.bound_by == "compute"
    (row,) = [row for row in diagnosis.ops if row.name == "aten::mm"]
    assert row.count == 10
    assert 0.7 < (row.roof_fraction or 0) <= 1.05


def test_large_pointwise_operator_is_memory_bound_and_below_its_roof() -> None:
    import torch

    x = torch.randn(1 << 28, device="cuda")
    diagnosis = boundby.diagnose(lambda: torch.cos(x), warmup=3, steps=5)
    assert diagnosis.verdict.bound_by == "bandwidth"
    (row,) = [row for row in diagnosis.ops if row.name == "aten::cos"]
    assert row.bytes == 2 * 4 * (1 << 28)
    assert 0.8 < (row.roof_fraction or 0) <= 1.02


ATTENTION = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(1024, 3072)
    def forward(self, x):
        q, k, v = (p.view(4, 2048, 16, 64).transpose(1, 2) for p in self.project(x).split(1024, 2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean()
model = Net().cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(300):
    loss = model(torch.randn(4, 2048, 1024, device="cuda", dtype=torch.bfloat16))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def proven(folder: Path, source: str, *options: str) -> Diagnosis:
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "boundby", "prove", "--json", "proof.json", *options]
    path = f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"
    subprocess.run(
        [*command, "train.py"], cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=True
    )
    return msgspec.json.decode((folder / "proof.json").read_bytes(), type=Diagnosis)


def test_attention_kernels_are_selected_and_compared(tmp_path: Path) -> None:
    options = ("--only", "sdpa:flash,sdpa:efficient,sdpa:cudnn", "--budget", "110s")
    diagnosis = proven(tmp_path, ATTENTION, *options)
    measured = {proof.treatment: proof for proof in diagnosis.proofs if not proof.combines}
    assert set(measured) == {"sdpa:flash", "sdpa:efficient", "sdpa:cudnn"}
    for proof in measured.values():
        assert proof.outcome in ("kept", "no gain"), (proof.treatment, proof.why)
        assert proof.numerics is not None and proof.numerics.ok, proof.numerics
        assert proof.after_ns


def test_growing_segments_and_checkpoints_are_applied(tmp_path: Path) -> None:
    source = """
import torch
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
    def forward(self, x): return x + self.two(torch.relu(self.one(x)))
model = torch.nn.Sequential(*(Block() for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(300):
    loss = model(torch.randn(8192, 1024, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
    options = ("--only", "expandable-segments,checkpoints", "--budget", "80s")
    diagnosis = proven(tmp_path, source, *options)
    measured = {proof.treatment: proof for proof in diagnosis.proofs if not proof.combines}
    checkpoints = measured["checkpoints"]
    assert checkpoints.numerics is not None and checkpoints.numerics.ok
    assert checkpoints.peak_bytes.before is not None and checkpoints.peak_bytes.after is not None
    assert checkpoints.peak_bytes.after < 0.8 * checkpoints.peak_bytes.before
    assert measured["expandable-segments"].after_ns


def test_out_of_memory_is_detected(tmp_path: Path) -> None:
    """A loop that empties torch's cache in each step asks the driver for memory in each."""
    source = """
import torch
model = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(300):
    loss = model(torch.randn(4096, 4096, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    torch.cuda.empty_cache()
"""
    (tmp_path / "train.py").write_text(source)
    target = tmp_path / "run.json"
    subprocess.run(
        [sys.executable, "-m", "boundby", "run", "--quiet", "--json", str(target), "train.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"},
        check=True,
    )
    diagnosis = msgspec.json.decode(target.read_bytes(), type=Diagnosis)
    assert "fragmented-memory" in [finding.fault for finding in diagnosis.findings]


def test_graphs_fused_optimizer_and_compile_combine(tmp_path: Path) -> None:
    """What is made of a small model on a GPU: captured forward and backward, a fused optimizer."""
    source = """
import torch
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1))
          for _ in range(12)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2000):
    loss = model(torch.randn(64, 256, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
    options = ("--only", "fused,compile:reduce-overhead,cuda-graphs", "--budget", "180s")
    diagnosis = proven(tmp_path, source, *options)
    best = best_of(diagnosis.proofs)
    assert best is not None and best.combines, [
        (proof.treatment, proof.outcome, proof.why) for proof in diagnosis.proofs
    ]
    assert "fused" in best.treatment
    assert best.speedup is not None and best.speedup.low > 1.5


CHANGES: Counter[str] = Counter()


@contextlib.contextmanager
def treated(*keys: str, models: Sequence[Any]) -> Iterator[None]:
    """This process as the worker of a trial would have it; `CHANGES` are those made in it."""
    import torch

    from boundby.capture.torch.hooks import Hooks
    from boundby.fixes.log import changes_made
    from boundby.fixes.switch import Program
    from boundby.prove.switchboard import Switchboard
    from boundby.prove.worker import fix_of
    from tests.capture.test_live_hooks import Events

    hooks = Hooks()
    hooks.install(torch)
    hooks.watcher = Events()
    CHANGES.clear()
    program = Program(torch=torch, models=list(models))
    board = Switchboard(program, {key: fix_of(key) for key in keys})
    board.set(keys)
    try:
        yield
    finally:
        CHANGES.update(changes_made)
        board.set(())
        hooks.remove()


def losses_of(*keys: str, set_to_none: bool, parts: int) -> list[float]:
    """Of six steps, with `parts` backwards in each, after a forward that leads to none."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[float] = []
    with treated(*keys, models=[model]):
        model(torch.ones(32, 64, device="cuda"))
        for _ in range(6):
            optimizer.zero_grad(set_to_none=set_to_none)
            for _ in range(parts):
                loss = (model(torch.randn(32, 64, device="cuda")) - 1).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
    return losses


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_replays_do_not_overwrite_kept_gradients(set_to_none: bool, parts: int) -> None:
    """Added up over two backwards, or zeroed in place: the losses show what was stepped by."""
    wanted = losses_of(set_to_none=set_to_none, parts=parts)
    found = losses_of("eager-launches/cuda-graphs", set_to_none=set_to_none, parts=parts)
    assert CHANGES["graph of Sequential"] == 1
    assert found == pytest.approx(wanted, rel=1e-4)


def test_garbage_collected_graphs_do_not_end_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's collector would free the first model's in the middle of the second's."""
    import torch

    plain = torch.nn.Tanh.forward

    def forward(self: Any, x: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            gc.collect()
        return plain(self, x)

    monkeypatch.setattr(torch.nn.Tanh, "forward", forward)
    gc.disable()
    try:
        for _ in range(2):
            losses_of("eager-launches/cuda-graphs", set_to_none=True, parts=1)
            assert CHANGES["graph of Sequential"] == 1
    finally:
        gc.enable()


def test_bert_in_plain_operators_is_captured() -> None:
    import torch

    transformers: Any = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        vocab_size=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )

    def losses(*keys: str) -> list[float]:
        torch.manual_seed(0)
        model = transformers.BertForMaskedLM(config).cuda().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        with treated(*keys, models=[model]):
            for _ in range(5):
                ids = torch.randint(0, 512, (4, 64), device="cuda")
                loss = model(input_ids=ids, labels=ids).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        return found

    wanted = losses()
    assert losses("eager-launches/cuda-graphs") == pytest.approx(wanted, rel=1e-4)
    assert CHANGES["graph of BertForMaskedLM"] == 1
