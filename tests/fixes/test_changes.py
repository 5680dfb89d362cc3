"""Each change to a program: it is made, it is noted, and it is undone."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.torch.hooks import Hooks  # noqa: E402
from boundby.fixes import FIXES, Fix  # noqa: E402
from boundby.fixes.checkpointing import CHECKPOINTS, NO_CHECKPOINTS  # noqa: E402
from boundby.fixes.loaders import most_workers, spare_workers  # noqa: E402
from boundby.fixes.log import changes_made  # noqa: E402
from boundby.fixes.switch import Program  # noqa: E402
from tests.capture.test_live_hooks import Events  # noqa: E402


@pytest.fixture(autouse=True)
def hooks() -> Iterator[None]:
    made = Hooks()
    made.install(torch)
    made.watcher = Events()
    changes_made.clear()
    yield
    made.remove()


@contextlib.contextmanager
def applied(fix: Fix, *models: Any, optimizers: Sequence[Any] = ()) -> Iterator[None]:
    """Entered as before a script's start where it has no switch, else switched on and off."""
    if fix.switch is None:
        assert fix.apply is not None
        with fix.apply():
            yield
        return
    program = Program(torch=torch, models=list(models), optimizers=list(optimizers))
    switch = fix.switch_for(program)
    if switch is None:
        yield
        return
    switch.on()
    try:
        yield
    finally:
        switch.off()


def named(name: str) -> Fix:
    return next(one for one in FIXES if one.name == name)


def mlp() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def test_every_fix_has_unique_name_and_change() -> None:
    assert len({one.name for one in FIXES}) == len(FIXES)
    for one in FIXES:
        assert one.change
        assert one.apply is not None or one.switch is not None or one.environment


@pytest.mark.parametrize("options", [{}, {"foreach": False, "fused": False}])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_optimizer_is_switched(name: str, options: dict[str, Any]) -> None:
    optimizer = getattr(torch.optim, name)(mlp().parameters(), lr=0.1, **options)
    before = dict(optimizer.param_groups[0])
    with applied(named("fused"), optimizers=[optimizer]):
        assert optimizer.param_groups[0]["fused"] is True
    assert optimizer.param_groups[0] == before
    assert not hasattr(optimizer, "_step_supports_amp_scaling")
    assert changes_made == {f"fused {name}": 1}


def test_parameters_that_cannot_be_fused_are_skipped() -> None:
    weight = torch.zeros(2, dtype=torch.complex64, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with applied(named("fused"), optimizers=[optimizer]):
        assert not optimizer.param_groups[0]["fused"]
    assert not changes_made


def test_gradients_are_set_to_none() -> None:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with applied(named("set-to-none")):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert net[0].weight.grad is None
    assert changes_made == {"gradients set to None": 1}


def test_matmul_precision_is_switched_on_and_off() -> None:
    with applied(named("tf32")):
        assert torch.get_float32_matmul_precision() == "high"
        torch.set_float32_matmul_precision("highest")
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("layers", "kind"), [("convolutions", "conv"), ("recurrent", "rnn")])
def test_cudnn_tf32_is_enabled_if_the_script_disabled_it(layers: str, kind: str) -> None:
    setting = getattr(torch.backends.cudnn, kind)
    before = setting.fp32_precision
    try:
        setting.fp32_precision = "ieee"
        with applied(named("tf32")):
            assert setting.fp32_precision == "tf32"
        assert setting.fp32_precision == "ieee"
        assert changes_made == {"matmul precision high": 1, f"tf32 {layers}": 1}
    finally:
        setting.fp32_precision = before


def test_autocast_covers_forward_and_loss_but_not_backward() -> None:
    net = mlp()
    with applied(named("autocast")):
        out = net(torch.ones(2, 4))
        assert out.dtype == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")
        out.sum().backward()
        assert not torch.is_autocast_enabled("cpu")
        with torch.no_grad():
            assert net(torch.ones(2, 4)).dtype == torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")


def test_script_with_its_own_autocast_is_unchanged() -> None:
    net = mlp()
    with applied(named("autocast")):
        with torch.autocast("cpu", torch.float16):
            assert net(torch.ones(2, 4)).dtype == torch.float16
        assert not torch.is_autocast_enabled("cpu")
    assert not changes_made


def test_autocast_of_script_is_switched_off() -> None:
    net, given = mlp(), torch.ones(2, 4)
    with applied(named("no-autocast")):
        with torch.autocast("cpu", torch.bfloat16):
            assert net(given).dtype == torch.float32
        with torch.autocast("cpu", enabled=False):
            net(given)
    assert changes_made == {"autocast off": 1}
    with torch.autocast("cpu", torch.bfloat16):
        assert net(given).dtype == torch.bfloat16


def test_outermost_module_is_compiled_in_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = mlp()
    made: list[Any] = []

    def compiled(call: Any, **options: Any) -> Any:
        made.append(options)
        return call

    monkeypatch.setattr(torch, "compile", compiled)
    switch = named("compile").switch_for(Program(torch=torch, models=[net]))
    assert switch is not None
    for _ in range(2):
        switch.on()
        net(torch.ones(2, 4))
        switch.off()
        assert net._compiled_call_impl is None
    assert made == [{"mode": None}]
    assert changes_made == {"compiled Sequential": 2}


class Cache:
    """As in transformers, whose configuration decides whether it is written in place."""

    def __init__(self, *, is_compileable: bool) -> None:
        self.is_compileable = is_compileable


class Decoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: Any, past_key_values: Any = None) -> Any:
        return x * self.weight


@pytest.mark.parametrize(
    ("name", "cache", "grad", "is_made"),
    [
        ("compile:reduce-overhead", Cache(is_compileable=False), False, False),
        ("compile:max-autotune", Cache(is_compileable=False), False, False),
        ("compile:reduce-overhead", ((torch.ones(1), torch.ones(1)),), False, False),
        ("compile", Cache(is_compileable=False), False, True),
        ("compile:reduce-overhead", Cache(is_compileable=True), False, True),
        ("compile:reduce-overhead", None, False, True),
        ("compile:reduce-overhead", Cache(is_compileable=False), True, True),
    ],
)
def test_model_with_a_growing_cache_is_compiled_without_graphs(
    name: str, cache: Any, grad: bool, is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Decoder()
    made: list[Any] = []

    def compiled(call: Any, **options: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            made.append(args)
            return call(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    with applied(named(name), net), torch.set_grad_enabled(grad):
        net(torch.ones(2), past_key_values=cache)
    assert len(made) == is_made
    # Left alone says why.
    assert any("overwrites the cache that Decoder" in word for word in changes_made) is not is_made


def test_channels_last_applies_to_images_and_convolutions() -> None:
    seen: list[bool] = []

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)

        def forward(self, x: Any) -> Any:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return self.conv(x)

    net = Net()
    weight = net.conv.weight
    with applied(named("channels-last"), net):
        net(torch.randn(2, 3, 8, 8))
        assert net.conv.weight is weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
    net(torch.randn(2, 3, 8, 8))
    assert seen == [True, False]
    assert weight.is_contiguous()


def test_loaders_get_workers() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader_class = torch.utils.data.DataLoader
    before = loader_class.__init__
    with applied(named("workers:all")):
        assert loader_class(data).num_workers == most_workers()
    with applied(named("workers")):
        loader = loader_class(data, 2)
        assert (loader.num_workers, loader.persistent_workers) == (spare_workers(), True)
        own = loader_class(data, num_workers=1)
        assert (own.num_workers, own.persistent_workers) == (1, False)

        class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
            def __iter__(self) -> Any:
                return iter(range(3))

        assert loader_class(Stream()).num_workers == 0
    assert loader_class.__init__ is before
    assert changes_made == {"workers for a DataLoader": 2}


def test_model_with_an_attention_option_uses_sdpa() -> None:
    net = mlp()
    net.config = SimpleNamespace(_attn_implementation="eager")
    with applied(named("sdpa")):
        net(torch.ones(2, 4))
        assert net.config._attn_implementation == "sdpa"
    assert net.config._attn_implementation == "eager"
    assert changes_made == {"attention of Sequential": 1}


def test_no_mask_is_built_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks whether it is being traced, and of what padding."""
    masking = ModuleType("transformers.masking_utils")
    masking.is_tracing = lambda padding=None: True  # type: ignore[attr-defined]
    before = masking.is_tracing
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masking)
    net = mlp()
    net.config = SimpleNamespace(_attn_implementation="eager")
    with applied(named("sdpa")):
        net(torch.ones(2, 4))
        assert not masking.is_tracing()
        assert masking.is_tracing(torch.ones(2, 4))
    assert masking.is_tracing is before


def test_multihead_attention_does_not_return_weights() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 4, 8)
    wanted, weights = attention(x, x, x)
    with applied(named("sdpa")):
        out, none = attention(x, x, x)
    assert weights is not None
    assert none is None
    assert torch.allclose(out, wanted, atol=1e-6)


class Block(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.linear(x).relu()


def test_checkpointed_blocks_are_recomputed_in_backward() -> None:
    net = torch.nn.Sequential(*(Block() for _ in range(3)))
    with applied(CHECKPOINTS):
        net(torch.ones(2, 4)).sum().backward()
        assert [block.calls for block in net] == [2, 2, 2]
    net(torch.ones(2, 4)).sum().backward()
    assert [block.calls for block in net] == [3, 3, 3]


def test_checkpointing_is_switched_off() -> None:
    import torch.utils.checkpoint as checkpointing

    block = Block()
    with applied(NO_CHECKPOINTS, block):
        out = checkpointing.checkpoint(block, torch.ones(2, 4), use_reentrant=False)
        out.sum().backward()
    assert block.calls == 1
    assert changes_made == {"a checkpoint taken off": 1}


def test_cuda_graphs_do_not_change_a_cpu_program() -> None:
    net = mlp()
    plain = net(torch.ones(2, 4))
    with applied(named("cuda-graphs"), net):
        for _ in range(3):
            assert torch.equal(net(torch.ones(2, 4)), plain)
    assert not changes_made
    assert "forward" not in vars(net) or net.forward.__func__ is torch.nn.Sequential.forward


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with applied(named("one-thread")):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    assert os.environ.get("OMP_WAIT_POLICY") is None


@pytest.mark.parametrize("name", ["flash", "efficient", "cudnn"])
def test_single_attention_kernel_is_selected_and_others_restored(name: str) -> None:
    switches = torch.backends.cuda
    kernels = {"flash": "flash_sdp", "efficient": "mem_efficient_sdp", "cudnn": "cudnn_sdp"}

    def state() -> dict[str, bool]:
        return {key: getattr(switches, f"{one}_enabled")() for key, one in kernels.items()}

    before = state()
    q = torch.randn(1, 2, 8, 4)
    with applied(named(f"sdpa:{name}")):
        assert state() == {key: key == name for key in kernels}
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert state() == before
    assert changes_made == {"attention backend": 1}


def test_fused_optimizer_change_uses_the_spelling_of_the_script() -> None:
    fused = named("fused")
    assert fused.written is not None
    assert fused.written({"fused SGD": 1}) == "torch.optim.SGD(..., fused=True)"
    assert fused.written({"fused Lion": 1}) == "Lion(..., fused=True)"


def test_every_fix_belongs_to_a_listed_fault() -> None:
    from boundby.faults import FAULTS

    assert {fix for fault in FAULTS for fix in fault.fixes} == set(FIXES)


def test_failed_capture_reports_its_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from boundby.fixes import cuda_graphs as graphs

    def record(*_: Any) -> None:
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        except RuntimeError:
            raise RuntimeError("failed due to a previous error during capture")  # noqa: B904

    monkeypatch.setattr(graphs, "_record", record)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    recorder, x = graphs.GraphedModules(torch, ()), torch.ones(2, 4)
    # As if on a device: nothing is captured here.
    on_device = type("OnDevice", (torch.Tensor,), {"is_cuda": True})
    x = x.as_subclass(on_device)
    with pytest.raises(
        RuntimeError, match="Sequential cannot be captured: operation not permitted"
    ):
        net = mlp()
        for _ in range(2):
            recorder._call(net, lambda x: x, (x,), {})


def test_masks_of_16_bits_drop_the_same_share_and_keep_the_mean() -> None:
    functional = torch.nn.functional
    before = functional.dropout
    torch.manual_seed(0)
    x = torch.ones(200, 2001, requires_grad=True)
    with applied(named("short-masks")):
        out = torch.nn.Dropout(0.3)(x)
        out.sum().backward()
        # What is small, in evaluation or dropped in place goes its own way.
        assert functional.dropout(x, 0.3, training=False) is x
        torch.nn.Dropout(0.3)(torch.ones(8))
    assert functional.dropout is before
    dropped = (out == 0).float()
    assert abs(dropped.mean().item() - 0.3) < 0.005
    # In each of a word's four parts.
    for part in range(4):
        assert abs(dropped.flatten()[part::4].mean().item() - 0.3) < 0.01
    assert out.max().item() == pytest.approx(1 / 0.7, rel=1e-4)
    assert torch.equal(x.grad, out.detach())
    assert changes_made == {"dropout masks": 1}
