"""Pinned memory, copies and allocator settings."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.fixes.allocator import growing_segments  # noqa: E402
from tests.fixes.test_changes import applied, named  # noqa: E402

QUICK = {"non_blocking": True}


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "quick", "named_so"),
    [
        ("to", ("cpu",), {}, ("cpu",), QUICK),
        ("to", ("cpu", None, False), {}, ("cpu", None, True), {}),
        ("to", ("cpu", None, True), {}, ("cpu", None, True), {}),
        ("to", ("cpu", None, False, True), {}, ("cpu", None, True, True), {}),
        ("to", (torch.half, False), {"copy": True}, (torch.half, True), {"copy": True}),
        ("to", ("cpu",), {"non_blocking": False}, ("cpu",), QUICK),
        ("to", (), {"dtype": torch.half}, (), {"dtype": torch.half, **QUICK}),
        ("cuda", (), {}, (), QUICK),
        ("cuda", (0,), {}, (0,), QUICK),
        ("cuda", (0, False), {}, (0, True), {}),
        ("cuda", (), {"non_blocking": False}, (), QUICK),
    ],
)
def test_copies_of_pinned_tensors_are_asynchronous(
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    quick: tuple[Any, ...],
    named_so: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However the script says whether to wait."""
    given: list[Any] = []
    to = torch.Tensor.to

    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        given.append((args, kwargs))
        # torch itself reads them; there is no device to copy to.
        return to(self, *args, **kwargs) if name == "to" else self

    monkeypatch.setattr(torch.Tensor, name, copied)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    with applied(named("pinned")):
        getattr(torch.ones(2), name)(*args, **kwargs)
    assert given == [(quick, named_so)]


GROWING = "expandable_segments:True"
SPLIT = "max_split_size_mb:128"
ROUNDED = "roundup_power2_divisions:[256:1,>:4]"


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        (None, None, (GROWING, GROWING)),
        (None, SPLIT, (f"{SPLIT},{GROWING}",) * 2),
        (SPLIT, None, (f"{SPLIT},{GROWING}",) * 2),
        (SPLIT, ROUNDED, (f"{SPLIT},{GROWING}", f"{ROUNDED},{GROWING}")),
        (None, f"expandable_segments:False,{ROUNDED}", (f"{ROUNDED},{GROWING}",) * 2),
        (None, f"{ROUNDED}, expandable_segments:True", (f"{ROUNDED},{GROWING}",) * 2),
        (None, "expandable_segments:False", (GROWING, GROWING)),
    ],
)
def test_growing_segments_keep_user_settings(
    new: str | None, old: str | None, wanted: tuple[str, str]
) -> None:
    given = {"PYTORCH_ALLOC_CONF": new, "PYTORCH_CUDA_ALLOC_CONF": old}
    found = growing_segments({name: value for name, value in given.items() if value is not None})
    assert found == dict(zip(given, wanted, strict=True))
