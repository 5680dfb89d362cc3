"""Numerical checks on recorded calls: right changes pass, planted wrong ones are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from boundby.fixes import FIXES  # noqa: E402
from boundby.fixes.switch import Program  # noqa: E402
from boundby.model.proof import Numerics  # noqa: E402
from boundby.prove import numerics  # noqa: E402
from boundby.prove.call_recorder import CallRecorder, RecordedCall  # noqa: E402
from boundby.prove.checks import Checks  # noqa: E402


class Experts(nn.Module):  # type: ignore[misc]
    """Two of four experts for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Any) -> Any:
        weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            share = (weight * (chosen == at)).sum(-1, keepdim=True)
            out = out + share * expert(x).to(out.dtype)
        return out


class Noisy(nn.Module):  # type: ignore[misc]
    """Draws noise in its forward, in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: Any) -> Any:
        return self.inner(x + 0.3 * torch.randn_like(x))


def plain() -> Any:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 8))


def with_dropout() -> Any:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 8))


def with_batch_norm() -> Any:
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))


def with_both() -> Any:
    """The running statistics do not depend on the dropout behind them."""
    return nn.Sequential(
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 8)
    )


def adversarial_pair() -> tuple[Any, Any]:
    return plain(), nn.Sequential(nn.Linear(32, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


MODELS: dict[str, Callable[[], Any]] = {
    "plain": plain,
    "dropout": with_dropout,
    "batch norm": with_batch_norm,
    "batch norm and dropout": with_both,
    "noise": Noisy,
    "experts": Experts,
    "pair": adversarial_pair,
}


def modules_of(model: str) -> list[Any]:
    torch.manual_seed(1)
    made = MODELS[model]()
    return list(made) if isinstance(made, tuple) else [made]


class Rig:
    """Recorded calls of tiny models, with an optimizer each, and the fix to be checked."""

    def __init__(self, *models: Any, inputs: Any = None) -> None:
        torch.manual_seed(0)
        self.models = models
        self.optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-2) for one in models]
        self.x = torch.randn(64, 32) if inputs is None else inputs
        for model, optimizer in zip(models, self.optimizers, strict=True):
            out = model(self.x)
            if isinstance(out, torch.Tensor) and out.layout is torch.strided:
                out.square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    def verdict(
        self, set_variant: Callable[[bool], None], precision: str | None = None, **options: Any
    ) -> Numerics:
        calls = [
            RecordedCall(module=one, args=(self.x,), kwargs={}, training=True, is_recorded=True)
            for one in self.models
        ]
        checks = Checks(torch, calls, self.optimizers, [])
        return checks.verdict(set_variant, precision, **options)

    def fix(self, name: str) -> Callable[[bool], None]:
        found = next(one for one in FIXES if one.name == name)
        program = Program(torch=torch, models=list(self.models), optimizers=self.optimizers)
        switch = found.switch_for(program)
        assert switch is not None
        on = [False]

        def set_variant(changed: bool) -> None:
            if changed != on[0]:
                on[0] = changed
                (switch.on if changed else switch.off)()

        return set_variant


def hooked(module: Any, make: Callable[[], Any]) -> Callable[[bool], None]:
    """A planted change: a hook that is registered while it is on."""
    handles: list[Any] = []

    def set_variant(changed: bool) -> None:
        if changed and not handles:
            made = make()
            handles.extend(made if isinstance(made, list) else [made])
        elif not changed:
            while handles:
                handles.pop().remove()

    return set_variant


@pytest.mark.parametrize("name", ["fused", "autocast", "bf16-products"])
@pytest.mark.parametrize("model", MODELS)
def test_correct_changes_are_accepted(model: str, name: str) -> None:
    rig = Rig(*modules_of(model))
    precision = next(one for one in FIXES if one.name == name).precision
    found = rig.verdict(rig.fix(name), precision)
    assert found.ok, found.why
    assert found.verified


@pytest.mark.parametrize("model", MODELS)
def test_scaled_gradients_are_refused(model: str) -> None:
    modules = modules_of(model)
    last = modules[-1]
    plant = hooked(
        last, lambda: [p.register_hook(lambda grad: grad * 1.1) for p in last.parameters()]
    )
    found = Rig(*modules).verdict(plant, "bfloat16")
    assert not found.ok and found.verified, found.why
    assert found.tensor is not None and "gradient" in found.tensor
    assert found.error is not None and found.tolerance is not None
    assert found.error > found.tolerance


@pytest.mark.parametrize("model", MODELS)
def test_a_dropped_layer_is_refused(model: str) -> None:
    modules = modules_of(model)
    kinds = (nn.ReLU, nn.GELU, nn.LeakyReLU)
    inner = [one for module in modules for one in module.modules()]
    # The last activation, or the last expert.
    layer = [one for one in inner if isinstance(one, kinds)][-1:] or [modules[0].experts[-1]]
    plant = hooked(
        layer[0], lambda: layer[0].register_forward_hook(lambda module, args, out: args[0])
    )
    found = Rig(*modules).verdict(plant, "bfloat16")
    assert not found.ok and found.verified, found.why


def with_attribute(owner: Any, name: str, value: object) -> Callable[[bool], None]:
    """A planted change: an attribute with another value while it is on."""
    before = getattr(owner, name)
    return lambda changed: setattr(owner, name, value if changed else before)


def test_missing_dropout_is_rejected() -> None:
    module = with_dropout()
    found = Rig(module).verdict(with_attribute(module[2], "p", 0.0))
    assert not found.ok, found.why
    assert found.tensor is not None and "spread" in found.tensor


def test_missing_noise_is_rejected() -> None:
    module = Noisy()
    found = Rig(module).verdict(with_attribute(module, "forward", module.inner.forward))
    assert not found.ok and found.verified, found.why


def test_running_statistics_that_stay_the_same_are_rejected() -> None:
    module = with_batch_norm()
    found = Rig(module).verdict(with_attribute(module[1], "momentum", 0.0))
    assert not found.ok and found.verified, found.why


def test_result_without_randomness_has_no_spread() -> None:
    """The mean of six equal numbers may differ from them by its rounding."""
    draws = [{"buffer": np.array([0.1, 0.7])}] * 6
    assert np.mean([0.1] * 6) != 0.1
    compared = list(numerics.compare_draws(draws, draws, " of Net"))
    assert [one.what for one in compared] == ["mean of buffer of Net over random seeds"]


class Captured:
    """A module replaced by code that was made with dropout, and does not see it switched off."""

    def __init__(self, module: Any, *, factor: float = 1.0, dropout: float = 0.3) -> None:
        self._module, self._plain = module, module.forward
        self._factor, self._dropout = factor, dropout

    def __call__(self, changed: bool) -> None:
        self._module.forward = self._forward if changed else self._plain

    def _forward(self, x: Any) -> Any:
        first, relu, _, last = self._module
        torch.rand(1)  # other masks than with the same random state before
        hidden = nn.functional.dropout(relu(first(x)), self._dropout, training=True)
        out = last(hidden)
        # The same result, with scaled gradients.
        return out * self._factor + out.detach() * (1 - self._factor)


def test_captured_dropout_is_compared_as_the_script_calls_it() -> None:
    module = with_dropout()
    found = Rig(module).verdict(Captured(module), as_called=True)
    assert found.ok and found.verified, found.why


@pytest.mark.parametrize(
    ("planted", "tensor"),
    [({"factor": 1.3}, "gradients"), ({"dropout": 0.0}, "spread")],
)
def test_wrong_captured_dropout_is_refused(planted: dict[str, float], tensor: str) -> None:
    module = with_dropout()
    found = Rig(module).verdict(Captured(module, **planted), as_called=True)
    assert not found.ok and found.verified, found.why
    assert found.tensor is not None and tensor in found.tensor


def test_calls_compared_as_made_keep_mode_and_dropout() -> None:
    module, modes = with_dropout(), set()

    def note(module: Any, args: Any) -> None:
        modes.add((module.training, module[2].training))

    rig = Rig(module)
    module.register_forward_pre_hook(note)
    rig.verdict(rig.fix("fused"), as_called=True)
    assert modes == {(True, True)}


@pytest.mark.parametrize("model", MODELS)
def test_a_stale_buffer_is_refused(model: str) -> None:
    """As a graph that was captured with other data, and is replayed without copying them in."""
    modules = modules_of(model)
    rig = Rig(*modules)
    last = modules[-1]
    stale = last(torch.randn(64, 32)).detach()
    found = rig.verdict(
        hooked(last, lambda: last.register_forward_hook(lambda m, args, out: out * 0 + stale))
    )
    assert not found.ok and found.verified


def test_a_compiled_module_is_not_compiled_again() -> None:
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    rig = Rig(torch.compile(with_batch_norm(), backend=backend))
    before = len(compiled)
    found = rig.verdict(rig.fix("fused"), as_called=True)
    assert found.ok and found.verified, found.why
    assert len(compiled) == before


def test_a_scaled_update_is_refused() -> None:
    module = plain()
    rig = Rig(module)
    group = rig.optimizers[0].param_groups[0]

    def set_variant(changed: bool) -> None:
        group["lr"] = 1.1e-2 if changed else 1e-2

    found = rig.verdict(set_variant)
    assert not found.ok
    assert found.tensor is not None and "optimizer" in found.tensor


@pytest.mark.parametrize("half", [0, 1])
def test_both_halves_of_an_adversarial_pair_are_compared(half: int) -> None:
    pair = modules_of("pair")
    plant = hooked(
        pair[half], lambda: pair[half].register_forward_hook(lambda module, args, out: out * 1.01)
    )
    assert not Rig(*pair).verdict(plant).ok


@pytest.mark.parametrize("is_trained_through", [True, False])
def test_gradients_are_compared_only_where_the_script_computes_them(
    is_trained_through: bool,
) -> None:
    module = modules_of("plain")[0]
    rig = Rig(module)
    recorder = CallRecorder(torch)
    module.eval()
    recorder.call_begins(module, (rig.x,), {})
    result = module(rig.x)
    recorder.call_ends(module, result)
    if is_trained_through:
        result.sum().backward()
    found = Checks(torch, list(recorder.calls.values()), [], []).verdict(rig.fix("no-grad"), None)
    assert found.verified
    assert found.ok != is_trained_through


def test_an_evaluation_does_not_replace_a_call_in_training() -> None:
    module = modules_of("plain")[0]
    recorder = CallRecorder(torch)
    for training in (True, False):
        recorder.call_begins(module.train(training), (torch.ones(2, 32),), {})
    assert [call.training for call in recorder.calls.values()] == [True]


def test_check_leaves_the_program_bit_equal() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Dropout(0.2))
    rig = Rig(module)
    optimizer = rig.optimizers[0]
    module[0].weight.grad = torch.ones_like(module[0].weight)

    def state() -> Any:
        return (
            {k: v.clone() for k, v in module.state_dict().items()},
            {
                at: {k: v.clone() for k, v in one.items()}
                for at, one in enumerate(optimizer.state.values())
            },
            [dict(group) for group in optimizer.param_groups],
            module[0].weight.grad.clone(),
            torch.get_rng_state(),
            [one.training for one in module.modules()],
            torch.backends.mkldnn.matmul.fp32_precision == "none",
        )

    before = state()
    gradient = module[0].weight.grad
    for name in ("fused", "autocast"):
        rig.verdict(rig.fix(name), "bfloat16")
    torch.testing.assert_close(state(), before, rtol=0, atol=0)
    assert module[0].weight.grad is gradient


class Sparse(nn.Module):  # type: ignore[misc]
    """Multiplies by a sparse adjacency, and gives back a sparse and an integer result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 4))

    def forward(self, adjacency: Any) -> Any:
        return torch.sparse.mm(adjacency, self.weight)


def test_sparse_inputs_are_checked() -> None:
    adjacency = torch.eye(32).to_sparse()
    rig = Rig(Sparse(), inputs=adjacency)
    found = rig.verdict(rig.fix("fused"))
    assert found.ok, found.why


class Oddities(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: Any) -> Any:
        whole = torch.view_as_complex(torch.randn(3, 2))
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        return {"sparse": torch.eye(3).to_sparse(), "complex": whole, "nested": nested, "n": 3}


def test_results_that_cannot_be_compared_are_named_and_unverified() -> None:
    module = Oddities()
    calls = [
        RecordedCall(module=module, args=(torch.ones(2),), kwargs={}, training=True,
                     is_recorded=True)
    ]  # fmt: skip
    checks = Checks(torch, calls, [], [])
    found = checks.verdict(lambda changed: None, None)
    assert not found.verified and not found.ok
    for word in ("nothing could be compared", "sparse", "complex", "nested"):
        assert word in found.why
