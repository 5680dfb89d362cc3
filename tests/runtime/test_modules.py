"""What a module holds is read past its class."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from boundby.runtime.modules import buffers_of, parameters_of, parts_of  # noqa: E402


def _ids(tensors: Any) -> list[int]:
    return [id(one) for one in tensors]


def test_parameters_and_buffers_come_in_torchs_order_and_once() -> None:
    shared = torch.nn.Linear(3, 3)
    model = torch.nn.Sequential(shared, torch.nn.Sequential(torch.nn.BatchNorm1d(3), shared))
    model.register_parameter("absent", None)
    model[1].tied = shared.weight
    assert _ids(parameters_of(model)) == _ids(model.parameters())
    assert _ids(buffers_of(model)) == _ids(model.buffers())
    assert _ids(parts_of(model)) == _ids(model.modules())


def test_scripted_modules_are_read() -> None:
    model = torch.jit.trace(torch.nn.BatchNorm1d(3), torch.ones(2, 3))
    assert len(list(parameters_of(model))) == 2
    assert len(list(buffers_of(model))) == 3


def test_redefined_methods_are_not_called() -> None:
    class Odd(torch.nn.Linear):  # type: ignore[misc]
        def parameters(self, group: str) -> Any:
            raise AssertionError(group)

        named_parameters = modules = named_modules = parameters

    assert len(list(parameters_of(Odd(2, 2)))) == 2
