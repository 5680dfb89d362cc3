"""What surrounds a captured module: nothing can be captured here, so the graphs are played."""

import gc
import sys
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes import cuda_graphs as graphs  # noqa: E402
from boundby.fixes.cuda_graphs import CUDA_GRAPHS, GraphedModules, _without_collector  # noqa: E402
from boundby.fixes.log import changes_made  # noqa: E402

# As if on a device.
OnDevice: Any = type("OnDevice", (torch.Tensor,), {"is_cuda": True})
capturing = [False]


twinned: list[Any] = []


def remembered(module: Any, twins: dict[Any, Any]) -> Any:
    twinned[:] = [module, twins]
    return in_place_of(module, twins)


in_place_of = graphs._in_place_of


def played(function: Any, sample: tuple[Any, ...], **_: Any) -> Any:
    """As torch does it: each replay writes into the same memory, and hands out that memory."""
    leaves = [one for one in sample if one.requires_grad]
    slots = [torch.empty_like(leaf) for leaf in leaves]
    module, twins = twinned
    capturing[0] = True
    try:
        function(*sample)
    finally:
        capturing[0] = False

    def replay() -> Any:
        # A recorded graph reads the memory it was recorded with, not its replacement.
        with in_place_of(module, twins):
            return function(*sample)

    class Graphed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            # A forward shares its memory with the backward: what is in there is not kept.
            for slot in slots:
                slot.fill_(float("nan"))
            for slot, one in zip(sample, given, strict=True):
                if slot.data_ptr() != one.data_ptr():
                    slot.copy_(one)
            return tuple(one.detach() for one in replay())

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            with torch.enable_grad():
                found = torch.autograd.grad(replay(), leaves, grads)
            for slot, grad in zip(slots, found, strict=True):
                slot.copy_(grad)
            following = iter(slots)
            return tuple(next(following).detach() if x.requires_grad else None for x in sample)

    return Graphed.apply


@pytest.fixture(autouse=True)
def graphs_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", played)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(graphs, "_in_place_of", remembered)
    changes_made.clear()


def train(*, graphed: bool, set_to_none: bool, parts: int, warm: bool = False) -> list[float]:
    """Gradients of a weight after each of four steps; `warm`: after a forward without backward."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    plain = net.forward
    if graphed:
        GraphedModules(torch, [net]).on()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    if warm:
        net(torch.ones(2, 4).as_subclass(OnDevice))
    seen = []
    for _ in range(4):
        optimizer.zero_grad(set_to_none=set_to_none)
        for _ in range(parts):
            net(torch.randn(2, 4).as_subclass(OnDevice)).square().mean().backward()
        seen += net[0].weight.grad.flatten().tolist()
        optimizer.step()
    net.forward = plain
    return seen


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_replay_does_not_overwrite_kept_gradients(
    parts: int, set_to_none: bool, warm: bool
) -> None:
    wanted = train(graphed=False, set_to_none=set_to_none, parts=parts)
    assert train(graphed=True, set_to_none=set_to_none, parts=parts, warm=warm) == wanted


class Tied(torch.nn.Module):  # type: ignore[misc]
    """One weight in two places, and one that its module keeps a list of besides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.between = torch.nn.LSTM(4, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.between(self.first(x))[0])


def test_shared_weight_gets_both_gradients() -> None:
    found = []
    for graphed in (False, True):
        torch.manual_seed(0)
        net = Tied()
        own = list(net.parameters())
        if graphed:
            GraphedModules(torch, [net]).on()
        for _ in range(3):
            net.zero_grad()
            loss = net(torch.randn(2, 4).as_subclass(OnDevice)).square().sum()
            loss.backward()
        assert all(a is b for a, b in zip(net.parameters(), own, strict=True))
        assert net.last.weight is net.first.weight
        assert all(a is b for a, b in zip(net.between._flat_weights, own[3:], strict=True))
        found.append([parameter.grad for parameter in own])
    assert changes_made["graph of Tied"] == 1
    torch.testing.assert_close(found[0], found[1])


def test_owned_gradients_are_not_copied_again() -> None:
    net = torch.nn.Linear(4, 1)
    GraphedModules(torch, [net]).on()
    x = torch.ones(2, 4).as_subclass(OnDevice)
    held = []
    for _ in range(5):
        net(x).sum().backward()
        held.append(net.weight.grad)
    assert held[2] is held[3] is held[4]


def test_no_mask_is_built_during_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks whether it is being traced, and of what padding."""
    masking: Any = ModuleType("transformers.masking_utils")
    masking.is_tracing = before = lambda padding=None: capturing[0]
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masking)
    seen = []

    class Net(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            seen.append((capturing[0], masking.is_tracing(None), masking.is_tracing(x)))
            return super().forward(x)

    net = Net(4, 1)
    GraphedModules(torch, [net]).on()
    for _ in range(2):
        net(torch.ones(2, 4).as_subclass(OnDevice))
    assert (True, False, True) in seen
    assert (True, True, True) not in seen
    assert masking.is_tracing is before
    assert CUDA_GRAPHS.written is not None
    lines = CUDA_GRAPHS.written(changes_made).splitlines()
    assert lines[0].startswith("transformers.masking_utils.is_tracing = ")
    assert lines[1:] == [CUDA_GRAPHS.change]
    assert CUDA_GRAPHS.written({"graph of Net": 1}) == CUDA_GRAPHS.change


def test_bert_in_plain_operators_can_be_captured() -> None:
    """A mask of it would be made of a number that is copied to the device."""
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=32,
        attn_implementation="eager",
    )
    model = transformers.BertForMaskedLM(config)
    given: dict[bool, list[Any]] = {True: [], False: []}

    def masked(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given[capturing[0]].append(args[1] if len(args) > 1 else kwargs["attention_mask"])

    model.bert.encoder.layer[0].register_forward_pre_hook(masked, with_kwargs=True)
    ids = torch.randint(0, 32, (2, 8)).as_subclass(OnDevice)
    GraphedModules(torch, [model]).on()
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
    assert given[True] == [None]
    assert set(given[False]) == {None}


def test_garbage_collection_is_paused_during_capture() -> None:
    """And is left as it was found."""
    assert gc.isenabled()
    with _without_collector():
        assert not gc.isenabled()
        with _without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_number_of_graphs_per_module_is_limited() -> None:
    net = torch.nn.Linear(4, 1)
    modules = GraphedModules(torch, [net])
    modules.on()
    for _ in range(3):
        for rows in range(1, 20):
            net(torch.ones(rows, 4).as_subclass(OnDevice))
    assert len(modules._recorded) == graphs._MAX_GRAPHS
