"""One training step of a small MLP in torch: as usually written, and as one function."""

from __future__ import annotations

from typing import Any

from boundby.hardware.stopwatch import Workload

# Small enough that the host is the limit.
LAYERS, WIDTH, BATCH = 6, 64, 32
LEARNING_RATE, CLIP = 1e-3, 1.0  # usual values; the time does not depend on them
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


def eager_loss(device: str) -> tuple[Any, Workload]:
    """The model as usually written, and its loss."""
    import torch
    from torch import nn

    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to(device)
    x, y = (torch.randn(BATCH, WIDTH, device=device) for _ in range(2))
    return model, lambda: nn.functional.mse_loss(model(x), y)


def eager_step(device: str, *, capturable: bool = False) -> Workload:
    """Forward, backward, gradients clipped by value, Adam."""
    import torch
    from torch import nn

    model, loss_of = eager_loss(device)
    extra = {"capturable": True} if capturable else {}
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, foreach=True, **extra)

    def step() -> None:
        loss: Any = loss_of()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not capturable)

    return step


def whole_step(device: str) -> tuple[Any, tuple[Any, ...]]:
    """The same as one function of parameters, moments and data, for a compiler."""
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
