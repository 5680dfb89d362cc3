"""Every way to compile a training step, counted: run as a script, `plain` or `watched`.

Prints one JSON object: form -> graphs, nodes, frames, losses, and the kinds of step found.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from boundby.capture.process.step_finder import StepFinder
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.line_tracer import LineTracer
from boundby.capture.torch.object_ids import ObjectIds
from boundby.capture.torch.shapes import first_shape

STEPS, TRACED, WATCHED = 14, 4, 8  # lines are traced from the fourth step to the eighth
FORMS: dict[str, Callable[["Loop"], None]] = {}


def form(define: Callable[["Loop"], None]) -> Callable[["Loop"], None]:
    FORMS[define.__name__] = define
    return define


class Block(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))

    def forward(self, x: Any) -> Any:
        return x + self.second(self.first(x).relu())


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean()


class Loop:
    """One training loop, whose parts a form may compile."""

    def __init__(self) -> None:
        self.graphs: list[int] = []
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.model: Callable[[Any], Any] = self.net
        self.step: Callable[[], Any] = self.optimizer.step
        self.whole: Callable[[Any], Any] | None = None

    def backend(self, graph: Any, _: Any) -> Any:
        self.graphs.append(len(list(graph.graph.nodes)))
        return graph.forward

    def compile(self, what: Any) -> Any:
        return torch.compile(what, backend=self.backend)

    def losses(self) -> Iterator[float]:
        for _ in range(STEPS):
            yield float(self.iterate(torch.randn(4, 8)))

    def iterate(self, x: Any) -> Any:
        if self.whole is not None:
            return self.whole(x)
        loss = self.model(x)
        loss.backward()
        self.step()
        self.optimizer.zero_grad()
        return loss


@form
def module(loop: Loop) -> None:
    loop.model = loop.compile(loop.net)


@form
def module_in_place(loop: Loop) -> None:
    loop.net.compile(backend=loop.backend)


@form
def blocks(loop: Loop) -> None:
    for index, block in enumerate(loop.net.blocks):
        loop.net.blocks[index] = loop.compile(block)


@form
def blocks_in_place(loop: Loop) -> None:
    for block in loop.net.blocks:
        block.compile(backend=loop.backend)


@form
def forward_method(loop: Loop) -> None:
    loop.net.forward = loop.compile(loop.net.forward)  # type: ignore[method-assign]


@form
def module_with_hooks(loop: Loop) -> None:
    loop.net.blocks[0].register_forward_hook(lambda _, __, out: out * 2)
    loop.model = loop.compile(loop.net)


@form
def function(loop: Loop) -> None:
    net = loop.net
    loop.model = loop.compile(lambda x: net(x))


@form
def decorator(loop: Loop) -> None:
    net = loop.net

    @torch.compile(backend=loop.backend)
    def forward(x: Any) -> Any:
        return net(x)

    loop.model = forward


@form
def function_in_module(loop: Loop) -> None:
    activation = loop.compile(torch.nn.functional.gelu)

    class Outer(Net):
        def forward(self, x: Any) -> Any:
            return activation(super().forward(x))

    loop.net.__class__ = Outer
    loop.model = loop.compile(loop.net)


@form
def given_up_function(loop: Loop) -> None:
    net = loop.net

    def forward(x: Any) -> Any:
        loss = net(x)
        for _ in range(2):
            torch._dynamo.graph_break()
            loss = loss * 0.5 + 1
        return loss[None][0]

    loop.model = loop.compile(forward)


@form
def optimizer_step(loop: Loop) -> None:
    loop.step = loop.compile(loop.optimizer.step)


@form
def optimizer_in_function(loop: Loop) -> None:
    optimizer = loop.optimizer
    loop.step = loop.compile(lambda: optimizer.step())


@form
def scheduled_optimizer_step(loop: Loop) -> None:
    torch.optim.lr_scheduler.StepLR(loop.optimizer, 100)
    loop.step = loop.compile(loop.optimizer.step)


@form
def whole_step(loop: Loop) -> None:
    net, optimizer = loop.net, loop.optimizer

    def train(x: Any) -> Any:
        loss = net(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    loop.whole = loop.compile(train)


class Finding:
    """A watcher that only finds steps."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._finder = StepFinder("auto", self.kinds.append)
        self._keys = ObjectIds()

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = args[1:] if args and args[0] is called else args
        self._finder.called(self._keys.of(called), True, first_shape(given, kwargs))

    def backward_begins(self) -> None:
        return

    def backward_ends(self) -> None:
        return

    def optimizer_made(self, optimizer: object) -> None:
        self._finder.optimizer_made(self._keys.of(optimizer))

    def optimizer_begins(self, optimizer: object) -> None:
        return

    def optimizer_ends(self, optimizer: object) -> None:
        self._finder.optimizer_stepped(self._keys.of(optimizer))

    def batch_came(self, waited_ns: int, workers: int, iterator: int | None = None) -> None:
        return


def measure(define: Callable[[Loop], None], hooks: Hooks | None) -> dict[str, Any]:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    watcher = Finding()
    if hooks is not None:
        hooks.watcher = watcher
    loop = Loop()
    define(loop)
    losses = []
    tracer = LineTracer(torch)
    for number, loss in enumerate(loop.losses(), 1):
        losses.append(loss.hex())
        if hooks is not None and number == TRACED:
            tracer.start()
        if hooks is not None and number == WATCHED:
            hooks.watcher = None
            tracer.stop()
    return {
        "graphs": len(loop.graphs),
        "nodes": sum(loop.graphs),
        "frames": counters["frames"]["total"],
        "breaks": sum(counters["graph_break"].values()),
        "losses": losses,
        "kinds": watcher.kinds,
    }


def main(watched: bool) -> None:
    hooks = None
    if watched:
        hooks = Hooks()
        hooks.install(torch)
    # Loaded after the hooks are installed, as when a script compiles something.
    importlib.import_module("torch._dynamo")
    print(json.dumps({name: measure(define, hooks) for name, define in FORMS.items()}))


if __name__ == "__main__":
    main(sys.argv[1] == "watched")
