"""Proving functions: in fresh processes where they can be imported, else in this one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import boundby
from tests.machines import round_machine

torch: Any = pytest.importorskip("torch")

from boundby.prove import functions  # noqa: E402
from tests.prove import stepping  # noqa: E402


def test_which_functions_other_processes_can_import() -> None:
    assert functions._is_importable(stepping.train)
    assert not functions._is_importable(lambda: None)
    assert not functions._is_importable(torch.nn.Linear(1, 1).forward)


def test_a_function_in_fresh_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    diagnosis = boundby.prove(
        stepping.train, 32, only=["unfused-optimizer"], budget_s=1, steps=4, machine=round_machine()
    )
    # A second is too little for anything but the baseline, and that is said.
    (proof,) = diagnosis.proofs
    assert proof.outcome == "not run"
    assert proof.why.startswith("its turn did not come")
    assert any(note.code == "over-budget" for note in diagnosis.notes)
    assert len(proof.before_ns) == 1
    assert diagnosis.target == "train"
    assert "no fix held" in str(diagnosis)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """On a busy machine two that wait for each other take a hundred times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(
    torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="on a CPU without bfloat16 a step of it takes two hundred times as long",
)
def test_a_closure_in_this_process() -> None:
    """Everything starts alike each time, and nothing stays changed."""
    torch.manual_seed(0)
    parts = (torch.nn.Linear(256, 256), torch.nn.Dropout(0.1), torch.nn.Linear(256, 256))
    model = torch.nn.Sequential(*parts)
    optimizer = torch.optim.AdamW(model.parameters())

    def train() -> None:
        loss = model(torch.ones(512, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    forward, dropout = torch.nn.Module.__call__, torch.nn.functional.dropout
    diagnosis = boundby.prove(
        train,
        only=["unfused-optimizer", "float32-products"],
        budget_s=30,
        steps=4,
        machine=round_machine(),
    )
    proofs = {proof.treatment: proof for proof in diagnosis.proofs}
    assert proofs["autocast"].outcome in ("kept", "no gain")
    numerics = proofs["autocast"].numerics
    assert numerics is not None
    assert numerics.ok, numerics.why
    assert proofs["fused"].why == "it found nothing in the script to change"
    assert any(note.code == "same-process" for note in diagnosis.notes)
    assert torch.nn.Module.__call__ is forward
    assert torch.nn.functional.dropout is dropout
    assert not torch.is_autocast_enabled("cpu")
