"""Switches a live optimizer to its fused kernels and back, with its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boundby.fixes.log import leave, note
from boundby.fixes.switch import Program

FUSED_CLASSES = ("Adam", "AdamW", "SGD", "Adagrad")
_SCALING = "_step_supports_amp_scaling"
# Set by an optimizer's first fused step.
_CHECKED = "_need_device_dtype_check_for_fused"
_MISSING = object()


class FusedOptimizers:
    """All optimizers that have a fused form for their parameters."""

    def __init__(self, torch: Any, optimizers: Sequence[Any]) -> None:
        self.objects = optimizers
        self._torch = torch
        self._groups: list[tuple[Any, dict[str, Any]]] = []
        self._attributes: list[tuple[Any, str, Any]] = []

    def on(self) -> None:
        for optimizer in self.objects:
            for name in (_SCALING, _CHECKED):
                self._attributes.append((optimizer, name, vars(optimizer).get(name, _MISSING)))
            setattr(optimizer, _SCALING, True)
            for group in optimizer.param_groups:
                kept = {name: group[name] for name in ("fused", "foreach") if name in group}
                self._groups.append((group, kept))
                group.update(fused=True, foreach=False)
                for parameter, step in self._steps(optimizer, group):
                    if step.device != parameter.device:
                        moved = step.to(parameter.device, self._torch.float32, non_blocking=True)
                        optimizer.state[parameter]["step"] = moved
            note(f"fused {type(optimizer).__name__}")

    def off(self) -> None:
        for group, kept in self._groups:
            for name in ("fused", "foreach"):
                group.pop(name, None)
            group.update(kept)
        self._groups.clear()
        for optimizer, name, before in self._attributes:
            if before is _MISSING:
                vars(optimizer).pop(name, None)
            else:
                setattr(optimizer, name, before)
        self._attributes.clear()
        for optimizer in self.objects:
            self._bring_steps_back(optimizer)

    def _bring_steps_back(self, optimizer: Any) -> None:
        """Move step counts back to the host, where foreach and plain loops count unless captured:
        one transfer."""
        moved = [
            (parameter, step)
            for group in optimizer.param_groups
            if not group.get("capturable") and not group.get("fused")
            for parameter, step in self._steps(optimizer, group)
            if step.device.type != "cpu"
        ]
        by_device: dict[Any, list[tuple[Any, Any]]] = {}
        for parameter, step in moved:
            by_device.setdefault(step.device, []).append((parameter, step))
        for pairs in by_device.values():
            values = self._torch.stack([step for _, step in pairs]).cpu().unbind()
            for (parameter, _), value in zip(pairs, values, strict=True):
                # Each in its own storage: an in-place addition must not change the others.
                optimizer.state[parameter]["step"] = value.clone()

    def _steps(self, optimizer: Any, group: dict[str, Any]) -> list[tuple[Any, Any]]:
        found = []
        for parameter in group["params"]:
            step = optimizer.state.get(parameter, {}).get("step")
            if isinstance(step, self._torch.Tensor):
                found.append((parameter, step))
        return found


def fused_switch(program: Program) -> FusedOptimizers | None:
    able = [one for one in program.optimizers if _can_fuse(program.torch, one)]
    return FusedOptimizers(program.torch, able) if able else None


def _can_fuse(torch: Any, optimizer: Any) -> bool:
    classes = tuple(getattr(torch.optim, name) for name in FUSED_CLASSES)
    known = [one for one in type(optimizer).__mro__ if one in classes]
    if not known:
        return False
    # A subclass with its own update has no fused form.
    update = getattr(type(optimizer), "_init_group", None)
    if update is not getattr(known[0], "_init_group", None):
        leave(f"{type(optimizer).__name__} has an update of its own")
        return False
    groups = optimizer.param_groups
    if any(group.get("fused") or group.get("differentiable") for group in groups):
        return False
    # The CPU has fused kernels for all four, CUDA for all but Adagrad.
    devices = {"cpu"} if known[0].__name__ == "Adagrad" else {"cpu", "cuda"}
    return all(
        parameter.is_floating_point()
        and parameter.device.type in devices
        and type(parameter.data) is torch.Tensor
        and not (parameter.grad is not None and parameter.grad.is_sparse)
        for group in groups
        for parameter in group["params"]
    )
