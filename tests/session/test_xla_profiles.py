"""XLA profiles, from the file to the diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.model.diagnosis import Diagnosis
from boundby.session.traces import load

OWN = Path(__file__).parent.parent / "data" / "xplane"
SHARED = Path(__file__).parents[3] / "shared" / "traces"


def shared(name: str) -> Path:
    path = SHARED / f"{name}.xplane.pb.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return path


def check(diagnosis: Diagnosis) -> None:
    """Parts add up, little is unknown, nothing is past its roof."""
    groups = diagnosis.account.groups().values()
    assert sum(group.ns for group in groups) == pytest.approx(diagnosis.step.wall_ns)
    busy = diagnosis.step.device_busy_ns
    assert busy is not None
    assert diagnosis.account.unknown.ns <= 0.05 * busy
    assert not [row.name for row in diagnosis.ops if row.roof_suspect]
    assert not [finding for finding in diagnosis.findings if "torch" in finding.change]


@pytest.mark.parametrize("name", ["decode", "sync_host"])
def test_own_xla_profiles_are_diagnosed(name: str) -> None:
    diagnosis = load(OWN / f"{name}.xplane.pb.gz")
    check(diagnosis)
    assert diagnosis.account.overhead.share > 0.5


@pytest.mark.parametrize(
    ("name", "busy_ms", "matrix_flops"),
    [
        # Matrix products by hand: of an LSTM's six (two forward, four backward) XLA leaves out the
        # gradient of its input, which is unused: 5/6 of 80.5e9.
        ("gpt", 11.64, 3.485e12),
        ("gpt_f32", 21.75, 3.485e12),
        ("gpt_nocmdbuf", 11.63, 3.485e12),
        ("lstm", 5.42, 80.5e9 * 5 / 6),
        ("linen", 5.93, None),
        ("resnet", 5.26, None),
        ("gpt_unjit_opt", 17.14, 3.485e12),
    ],
)
def test_h200_xla_profiles_are_diagnosed(
    name: str, busy_ms: float, matrix_flops: float | None
) -> None:
    diagnosis = load(shared(f"h200_jax/{name}"))
    check(diagnosis)
    assert diagnosis.step.device_busy_ns == pytest.approx(busy_ms * 1e6, rel=0.02)
    if matrix_flops is not None:
        found = sum(row.flops or 0.0 for row in diagnosis.ops if row.op_class == "contraction")
        assert found == pytest.approx(matrix_flops, rel=0.01)


@pytest.mark.parametrize("name", ["mi300x_jax_gemm", "mi300x_jax_attention"])
def test_xla_profiles_of_an_unnamed_chip_are_diagnosed(name: str) -> None:
    path = SHARED / "public" / f"{name}.xplane.pb"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    diagnosis = load(path)
    assert diagnosis.machine.chip == "MI300X"
    check(diagnosis)
