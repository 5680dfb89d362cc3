"""Which modules an optimizer updates."""

import gc

import pytest

from boundby.capture.torch.owners import Owners

torch = pytest.importorskip("torch")


def test_only_updated_modules_are_owned_once_one_is_known() -> None:
    owners = Owners(torch.nn.Module)
    model, teacher = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert owners.own(teacher)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    owners.made(optimizer)
    # Nothing says yet that this optimizer holds the parameters themselves.
    assert owners.own(teacher)
    assert owners.own(torch.nn.Sequential(teacher, model))
    assert not owners.own(teacher)
    assert owners.own(model)
    assert owners.own(lambda batch: batch)


def test_objects_are_not_kept_alive() -> None:
    owners = Owners(torch.nn.Module)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    owners.made(optimizer)
    owners.own(model)
    del optimizer, model
    gc.collect()
    assert len(owners._optimizers) == len(owners._known) == 0
