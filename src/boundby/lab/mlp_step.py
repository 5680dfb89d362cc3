"""One training step of a small MLP in torch: as people write it, and as one function."""

from __future__ import annotations

from typing import Any

from boundby.roofs.stopwatch import Work

LAYERS, WIDTH, BATCH = 6, 64, 32
LEARNING_RATE, CLIP = 1e-3, 1.0
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


def eager_step(device: str, *, capturable: bool = False) -> Work:
    """Forward, backward, gradients clipped by value, Adam."""
    import torch
    from torch import nn

    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to(device)
    extra = {"capturable": True} if capturable else {}
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, foreach=True, **extra)
    x, y = (torch.randn(BATCH, WIDTH, device=device) for _ in range(2))

    def step() -> None:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not capturable)

    return step


def whole_step(device: str) -> tuple[Any, tuple[Any, ...]]:
    """The same as one function of parameters, moments and data, for a compiler to take whole."""
    import torch
    from torch.func import grad

    def loss_of(parameters: list[Any], x: Any, y: Any) -> Any:
        for index in range(0, len(parameters), 2):
            x = torch.nn.functional.linear(x, parameters[index], parameters[index + 1])
            if index + 2 < len(parameters):
                x = x.relu()
        return torch.nn.functional.mse_loss(x, y)

    def step(parameters: list[Any], first: list[Any], second: list[Any], x: Any, y: Any) -> None:
        with torch.no_grad():
            gradients = grad(loss_of)(parameters, x, y)
            for p, m, v, g in zip(parameters, first, second, gradients, strict=True):
                clipped = g.clamp(-CLIP, CLIP)
                m.lerp_(clipped, 1 - _BETAS[0])
                v.lerp_(clipped * clipped, 1 - _BETAS[1])
                p.sub_(LEARNING_RATE * m / (v.sqrt() + _EPSILON))

    parameters = []
    for _ in range(LAYERS):
        parameters += [torch.randn(WIDTH, WIDTH, device=device) / WIDTH**0.5]
        parameters += [torch.zeros(WIDTH, device=device)]
    moments = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
    x, y = (torch.randn(BATCH, WIDTH, device=device) for _ in range(2))
    return step, (parameters, *moments, x, y)


def count_operators(step: Work) -> tuple[float, float]:
    """Operators that one step dispatches, and the bytes they read and write."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        operators = 0
        bytes = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            if not _is_view(function):
                self.operators += _calls(function, args)
                leaves = tree_leaves((args, kwargs, out))
                self.bytes += sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes"))
            return out

    step()
    with Counter() as counter:
        step()
    return float(counter.operators), float(counter.bytes)


def _calls(function: Any, args: Any) -> int:
    """Operators of a call over a list of tensors: one each on a CPU, one for all on a GPU."""
    listed = args[0] if args and isinstance(args[0], list | tuple) else ()
    if "_foreach" in str(function) and listed and listed[0].device.type == "cpu":
        return len(listed)
    return 1


def _is_view(function: Any) -> bool:
    """Asks for no work: a new look at the same numbers."""
    names = ("view", "t.", "transpose", "detach", "expand", "_unsafe_view", "alias")
    return any(part in str(function) for part in names)
