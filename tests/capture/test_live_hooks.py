"""What the hooks see of eager torch, and that torch stays as it was."""

import copy
import io
import pickle
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.capture.torch.hooks import Hooks  # noqa: E402


class Events:
    """A watcher that records its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.seen.append(f"call {type(called).__name__}")

    def backward_begins(self) -> None:
        self.seen.append("backward")

    def backward_ends(self) -> None:
        self.seen.append("backward ends")

    def optimizer_made(self, optimizer: object) -> None:
        self.seen.append(f"made {type(optimizer).__name__}")

    def optimizer_begins(self, optimizer: object) -> None:
        self.seen.append("step")

    def optimizer_ends(self, optimizer: object) -> None:
        self.seen.append("step ends")

    def batch_came(self, waited_ns: int, workers: int, iterator: int | None = None) -> None:
        self.seen.append("batch")

    def take(self) -> list[str]:
        taken, self.seen = self.seen, []
        return taken


STEP = ["call Sequential", "backward", "backward ends", "step", "step ends"]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made, plain = Hooks(), torch.nn.Module.__call__
    made.install(torch)
    yield made
    made.remove()
    torch.nn.Module.__call__ = plain  # also after a test that restores the watched one later


@pytest.fixture
def events(hooks: Hooks) -> Events:
    watcher = Events()
    hooks.watcher = watcher
    return watcher


def model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def train(net: Any, optimizer: Any) -> Any:
    loss = net(torch.ones(2, 4)).mean()
    loss.backward()
    optimizer.step()
    return loss


def test_step_is_observed_without_changing_the_script(events: Events) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    assert events.take() == ["made AdamW"]
    train(net, optimizer)
    assert events.take() == STEP


def test_loader_batches_are_observed(events: Events) -> None:
    loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert events.take() == ["batch", "batch"]


def test_no_call_is_recorded_without_a_watcher(hooks: Hooks, events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    events.take()
    hooks.watcher = None
    train(net, optimizer)
    assert events.take() == []


def test_removing_hooks_restores_torch(hooks: Hooks) -> None:
    hooks.remove()
    before = (
        torch.nn.Module.__call__,
        torch.autograd.backward,
        torch.compile,
        torch.optim.AdamW.step,
        torch.optim.Optimizer._patch_step_function,
    )
    again = Hooks()
    again.install(torch)
    torch.optim.AdamW(model().parameters())
    again.remove()
    assert before == (
        torch.nn.Module.__call__,
        torch.autograd.backward,
        torch.compile,
        torch.optim.AdamW.step,
        torch.optim.Optimizer._patch_step_function,
    )


def test_optimizers_created_before_the_hooks_are_observed() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    hooks, events = Hooks(), Events()
    hooks.install(torch)
    hooks.watcher = events
    try:
        train(net, optimizer)
    finally:
        hooks.remove()
    assert events.take() == STEP


def test_step_after_an_exception_is_observed(events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    with pytest.raises(RuntimeError):
        net(torch.ones(2, 5))
    with pytest.raises(RuntimeError):
        torch.ones(2, requires_grad=True).backward()
    with pytest.raises(ZeroDivisionError):
        optimizer.step(closure=lambda: 1 / 0)
    events.take()
    train(net, optimizer)
    assert events.take() == STEP


def test_learning_rate_scheduler_gives_no_warning(events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    events.take()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            train(net, optimizer)
            schedule.step()
    assert events.take() == STEP * 3
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1**4)


def test_closure_is_observed_inside_the_optimizer_step(events: Events) -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)
    events.take()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    seen = events.take()
    assert seen[0] == "step"
    assert seen[-1] == "step ends"
    assert "call Sequential" in seen
    assert seen.count("step") == 1


def test_step_through_a_grad_scaler_is_observed(events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    scaler = torch.amp.GradScaler("cpu")
    events.take()
    scaler.scale(net(torch.ones(2, 4)).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert events.take() == STEP


def test_copied_and_unpickled_optimizers_are_observed(events: Events) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    train(net, optimizer)
    buffer = io.BytesIO()
    torch.save(optimizer, buffer)
    buffer.seek(0)
    for other in (
        copy.deepcopy(optimizer),
        pickle.loads(pickle.dumps(optimizer)),
        torch.load(buffer, weights_only=False),
    ):
        assert "step" not in vars(other)
        other.load_state_dict(optimizer.state_dict())
        events.take()
        other.step()
        assert events.take() == ["step", "step ends"]


def test_nested_optimizer_step_counts_once(events: Events) -> None:
    class Outer(torch.optim.SGD):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    net = model()
    torch.optim.SGD(net.parameters())
    optimizer = Outer(net.parameters())
    events.take()
    train(net, optimizer)
    assert events.take() == STEP


def test_hooks_do_not_keep_optimizers_alive(events: Events) -> None:
    import gc
    import weakref

    gc.collect()
    gc.disable()
    try:
        optimizer = torch.optim.SGD(model().parameters())
        gone = weakref.ref(optimizer)
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_recomputation_in_backward_is_not_a_call(events: Events) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    Checkpointed()(torch.ones(2, 4)).mean().backward()
    assert events.take() == ["call Checkpointed", "backward", "backward ends"]


def test_modules_called_on_other_threads_are_not_steps(events: Events) -> None:
    thread = threading.Thread(target=lambda: model()(torch.ones(2, 4)))
    thread.start()
    thread.join()
    assert events.take() == []


def test_a_worker_that_alone_calls_the_model_takes_the_steps(events: Events) -> None:
    net = model()
    net(torch.ones(2, 4))  # the first thread warms the model up

    def work(calls: int) -> None:
        for _ in range(calls):
            net(torch.ones(2, 4))

    # The second worker comes too late: a profile follows one thread.
    for calls in (5, 9):
        thread = threading.Thread(target=work, args=(calls,))
        thread.start()
        thread.join()
    assert events.take() == ["call Sequential", *["call Sequential"] * 3]


def test_the_thread_that_trains_keeps_the_steps(events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    train(net, optimizer)
    events.take()

    def evaluate() -> None:
        for _ in range(9):
            net(torch.ones(2, 4))

    thread = threading.Thread(target=evaluate)
    thread.start()
    thread.join()
    assert events.take() == []


def test_training_on_other_thread_is_observed(events: Events) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters())
    events.take()

    def work() -> None:
        for _ in range(3):
            train(net, optimizer)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    # What came before the first step on that thread was not known to be one.
    assert events.take() == ["step", "step ends", *STEP, *STEP]


def test_symbolic_tracing_and_scripting_work(events: Events) -> None:
    net = model()
    expected = net(torch.ones(2, 4))
    assert torch.equal(torch.fx.symbolic_trace(net)(torch.ones(2, 4)), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(torch.jit.script(net)(torch.ones(2, 4)), expected)


def test_installing_hooks_again_does_not_stack_them(events: Events) -> None:
    import gc
    import weakref

    gone = []
    for _ in range(3):
        extra = Hooks()
        extra.install(torch)
        extra.remove()
        gone.append(weakref.ref(extra))
        del extra
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3


class Transformed(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples that pass through modules: one without parameters, one that has some."""

    def __init__(self) -> None:
        self.transform = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.transform(torch.ones(2)).detach()


def test_modules_called_while_a_batch_is_fetched_are_not_steps(events: Events) -> None:
    loader = torch.utils.data.DataLoader(Transformed(), batch_size=2)
    model = torch.nn.Linear(2, 1)
    for batch in loader:
        model(batch)
    assert events.take() == ["batch", "call Linear"] * 2


def test_modules_without_parameters_are_not_steps(events: Events) -> None:
    transform, model = torch.nn.ReLU(), torch.nn.Linear(2, 1)
    for _ in range(3):
        model(transform(torch.ones(2)))
    assert events.take() == ["call Linear"] * 3


def test_a_call_of_all_modules_that_the_script_changes_and_changes_back(
    hooks: Hooks, events: Events
) -> None:
    seen = []
    original = torch.nn.Module.__call__

    def counted(module: Any, *args: Any) -> Any:
        seen.append(type(module).__name__)
        return original(module, *args)

    net = model()
    torch.nn.Module.__call__ = counted
    try:
        net(torch.ones(2, 4))
        hooks.narrow()
        net(torch.ones(2, 4))
        assert seen.count("Sequential") == 2
    finally:
        torch.nn.Module.__call__ = original
    net(torch.ones(2, 4))
    assert seen.count("Sequential") == 2
    assert events.take().count("call Sequential") == 3


def test_modules_with_parameters_of_their_own_are_called(hooks: Hooks) -> None:
    class Actor(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(2, 2)

        def parameters(self, group: str) -> Any:
            return list(self.body.parameters()) if group == "body" else []

        def buffers(self) -> Any:
            raise NotImplementedError

        def forward(self, x: Any) -> Any:
            return self.body(x)

    watcher = hooks.watcher = Events()
    Actor()(torch.ones(2))
    assert watcher.take() == ["call Actor"]
