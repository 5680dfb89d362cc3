"""Fingerprints of values: equal ones are, but for a coincidence, equal tensors."""

from __future__ import annotations

import zlib
from typing import Any

_MOST_BYTES = 64 << 20  # time limit


def fingerprint(torch: Any, value: Any) -> tuple[Any, ...] | None:
    """A fingerprint; None for what cannot be read: sparse, quantized and subclassed tensors, those
    of a `vmap` or `grad` under way, large ones."""
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        if getattr(value, "nbytes", 0) > _MOST_BYTES or value.dtype.hasobject:
            return None
        return (value.shape, str(value.dtype), zlib.crc32(value.tobytes()))
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    if value.is_quantized or value.numel() * value.element_size() > _MOST_BYTES:
        return None
    with torch.no_grad():
        plain = value.detach()
        if plain.device.type == "meta":
            return None
        if plain.dtype.is_complex:
            plain = torch.view_as_real(plain.resolve_conj())
        plain = plain.resolve_neg().contiguous()
        if plain.device.type == "cpu":
            data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else b""
            code = zlib.crc32(data)
        else:
            # Computed on the device: a weighted sum distinguishes permutations, which a sum of bits
            # does not.
            ramp = torch.arange(plain.numel(), device=plain.device) % 1013
            flat = plain.reshape(-1).double()
            code = hash((float(flat.sum()), float((flat * ramp).sum())))
    return (tuple(value.shape), str(value.dtype), code)


def tensors_in(torch: Any, value: Any, most: int = 64) -> list[Any]:
    """The tensors of nested tuples, lists and mappings."""
    found: list[Any] = []
    waiting = [value]
    for _ in range(8 * most):
        if not waiting or len(found) >= most:
            break
        one = waiting.pop(0)
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, list | tuple):
            waiting.extend(one[:most])
        elif isinstance(one, dict):
            waiting.extend(list(one.values())[:most])
        elif hasattr(one, "__dataclass_fields__"):
            waiting.extend(list(vars(one).values())[:most])
    return found
