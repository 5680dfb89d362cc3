"""Every leaf operator that real models run on the CPU has a formula that can cost it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from boundby import ops as costs
from tests.ops.recording import Op, record

torch = pytest.importorskip("torch")

from tests.ops.models import MODELS, OPTIMIZERS  # noqa: E402  (needs torch)


def without_cost(ops: list[Op]) -> list[str]:
    """Names of torch's operators that hold no other, and that no formula costs."""
    leaves = [op for root in ops for op in root.walk() if not op.children]
    calls = [op.call for op in leaves if op.call.name.startswith("aten::")]
    return sorted({call.name for call in calls if costs.cost(call) is None})


def steps(model: str, optimizer: str, precision: str) -> Callable[[], None]:
    network, loss = MODELS[model]()
    chosen = OPTIMIZERS[optimizer](network.parameters())

    def train() -> None:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "mixed"):
                value = loss()
            value.backward()  # type: ignore[attr-defined]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            chosen.step()
            chosen.zero_grad()

    return train


@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("model", MODELS)
def test_operators_of_common_models_have_formulas(
    model: str, precision: str, tmp_path: Path
) -> None:
    train = steps(model, "AdamW fused", precision)
    try:
        train()
    except RuntimeError as error:
        if precision == "float32" or "primitive descriptor" not in str(error):
            raise
        pytest.skip("oneDNN has no bfloat16 for this model on this CPU")
    assert not without_cost(record(train, tmp_path))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_operators_of_optimizers_have_formulas(optimizer: str, tmp_path: Path) -> None:
    missing = without_cost(record(steps("convolutional", optimizer, "float32"), tmp_path))
    assert not missing


@pytest.mark.parametrize("model", MODELS)
def test_operators_of_inference_have_formulas(model: str, tmp_path: Path) -> None:
    network, loss = MODELS[model]()
    network.eval()

    def infer() -> None:
        with torch.inference_mode():
            loss()

    assert not without_cost(record(infer, tmp_path))


def test_operators_of_losses_have_formulas(tmp_path: Path) -> None:
    functional = torch.nn.functional
    names = (
        "l1_loss smooth_l1_loss huber_loss mse_loss binary_cross_entropy kl_div soft_margin_loss"
    )

    def compute() -> None:
        for name in [*names.split(), "binary_cross_entropy_with_logits"]:
            for reduction in ("none", "mean", "sum"):
                x, y = torch.rand(8, 8, requires_grad=True), torch.rand(8, 8)
                getattr(functional, name)(x, y, reduction=reduction).sum().backward()
        logs = torch.randn(10, 2, 5, requires_grad=True).log_softmax(2)
        lengths, targets = torch.tensor([10, 10]), torch.randint(1, 5, (2, 3))
        functional.ctc_loss(logs, targets, lengths, torch.tensor([3, 3])).backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kl_div warns about its mean
        assert not without_cost(record(compute, tmp_path))


def test_operators_of_sampling_and_search_have_formulas(tmp_path: Path) -> None:
    def draw() -> None:
        p = torch.rand(4, 10)
        torch.multinomial(p, 3)
        torch.bernoulli(p)
        torch.randperm(10)
        p.exponential_()
        torch.searchsorted(torch.arange(5.0), p)
        torch.unique(p)
        torch.isin(torch.arange(4), torch.arange(2))
        p.kthvalue(2)
        p.median()
        p.flip(0).roll(1).tril()
        torch.embedding_bag(p, torch.tensor([0, 1, 2]), torch.tensor([0, 2]))

    assert not without_cost(record(draw, tmp_path))


# Not arithmetic on tensors' elements, or built from operators that have formulas.
COMPOSITES = {"aten::positive", "aten::rrelu", "aten::rrelu_"}


def test_every_pointwise_operator_of_torch_has_a_formula() -> None:
    missing = set()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            try:
                tags = torch._C._get_operation_overload(schema.name, schema.overload_name)[2]
            except (RuntimeError, TypeError):
                continue
            if torch.Tag.pointwise in (tags or ()) and costs.find(schema.name) is None:
                missing.add(schema.name)
    assert not missing - COMPOSITES
