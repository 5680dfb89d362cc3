"""Switching a fix on and off leaves the program as it was, bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.faults import FAULTS  # noqa: E402
from boundby.fixes import FIXES, Fix  # noqa: E402
from boundby.fixes.switch import Program  # noqa: E402

# Compiling is the compiler's to test; what is switched is one attribute.
OTHERS = {fix for fault in FAULTS if "torch" not in fault.frameworks for fix in fault.fixes}
STEP_FIXES = [
    one for one in FIXES if one.scope == "step" and "cpu" in one.devices and one not in OTHERS
]


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.drop = torch.nn.Dropout(0.2)
        self.out = torch.nn.Linear(4 * 6 * 6, 5)

    def forward(self, x: Any) -> Any:
        return self.out(self.drop(self.norm(self.conv(x)).relu()).flatten(1))


def step(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=False)
    net(torch.randn(4, 3, 8, 8)).square().mean().backward()
    optimizer.step()


def layout(tensor: Any) -> Any:
    return (tensor.detach().clone(), tensor.stride(), tensor.dtype, str(tensor.device))


def state(net: Any, optimizer: Any) -> Any:
    """Everything that a switch may touch; values are compared bit for bit."""
    return {
        "tensors": [layout(one) for one in (*net.parameters(), *net.buffers())],
        "identities": [id(one) for one in (*net.parameters(), *net.buffers())],
        "gradients": [None if p.grad is None else layout(p.grad) for p in net.parameters()],
        "states": [
            {name: layout(value) for name, value in one.items()} for one in optimizer.state.values()
        ],
        "groups": [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ],
        "flags": [
            {k: v for k, v in vars(one).items() if isinstance(v, (bool, float, str))}
            for one in net.modules()
        ],
        "hooks": [(len(one._forward_pre_hooks), len(one._forward_hooks)) for one in net.modules()],
        "calls": [
            (vars(one).get("forward"), vars(one).get("_compiled_call_impl"))
            for one in net.modules()
        ],
        "optimizer": sorted(vars(optimizer)),
        "precision": torch.get_float32_matmul_precision(),
        "precisions": [
            getattr(getattr(backend, kind), "fp32_precision", None)
            for backend in (torch.backends.mkldnn, torch.backends.cuda, torch.backends.cudnn)
            for kind in ("matmul", "conv", "rnn")
            if hasattr(backend, kind)
        ],
        "threads": torch.get_num_threads(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        ),
        "benchmark": torch.backends.cudnn.benchmark,
        "validation": torch.distributions.Distribution._validate_args,
        "dropout": torch.nn.functional.dropout,
        "zero_grad": torch.optim.Optimizer.zero_grad,
        "random": torch.get_rng_state(),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other)) and bool(one.dtype == other.dtype)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def differing(before: Any, after: Any) -> list[str]:
    return [name for name in before if not same(before[name], after[name])]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
@pytest.mark.parametrize("fix", STEP_FIXES, ids=lambda fix: fix.name)
def test_on_and_off_changes_nothing(fix: Fix, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda call, **_: call)
    torch.manual_seed(0)
    net = Net()
    momentum = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01, **momentum)
    for _ in range(2):
        step(net, optimizer)
    switch = fix.switch_for(Program(torch=torch, models=[net], optimizers=[optimizer]))
    assert switch is not None
    before = state(net, optimizer)
    for _ in range(2):
        switch.on()
        switch.off()
    assert differing(before, state(net, optimizer)) == []
    # Steps in between are the program's own; its configuration is restored.
    switch.on()
    step(net, optimizer)
    switch.off()
    after = state(net, optimizer)
    values = {"tensors", "gradients", "states", "random"}
    assert set(differing(before, after)) <= values
    for place in ("tensors", "states"):
        assert _layouts(after[place]) == _layouts(before[place])


def _layouts(value: Any) -> Any:
    """Strides, dtypes and devices without the values."""
    if isinstance(value, dict):
        return {key: _layouts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_layouts(one) for one in value]
    return value[1:]


def test_training_continues_unchanged_after_switching() -> None:
    def losses(switched: Callable[[Any, Any], None]) -> Any:
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for at in range(4):
            if at == 2:
                switched(net, optimizer)
            step(net, optimizer)
        return [p.detach().clone() for p in net.parameters()]

    def every(net: Any, optimizer: Any) -> None:
        for fix in STEP_FIXES:
            if fix.slot == "compilation":
                continue
            program = Program(torch=torch, models=[net], optimizers=[optimizer])
            switch = fix.switch_for(program)
            if switch is not None:
                switch.on()
                switch.off()

    assert same(losses(lambda *_: None), losses(every))
