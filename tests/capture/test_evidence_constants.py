"""Evidence of tensors that are built in every step with the same values."""

import torch
from torch import nn

from tests.capture.evidence_steps import evidence_of, network


def test_table_for_the_length_of_each_batch_is_part_of_one_constant() -> None:
    model, lengths = network(), iter([20, 24, 22, 28, 26, 21])

    def table(length: int) -> torch.Tensor:
        positions = torch.zeros(length, 8)
        for at in range(length):
            positions[at] = float(at)
        return positions

    def step() -> None:
        length = next(lengths)
        noise = torch.randn(length, 8)
        mask = torch.full((length, 8), -1.0).triu(1)
        model(noise + table(length) + mask).sum().backward()

    found = {name for one in evidence_of(step).rebuilt for name in one.names}
    assert found == {"mask", "table(...)"}


def test_growing_cache_is_no_constant_but_its_mask_is() -> None:
    model, kept = network(), torch.randn(20, 8)

    def step() -> None:
        nonlocal kept
        keys = torch.cat([kept, torch.randn(1, 8)])
        mask = torch.full((len(keys), len(keys)), -1.0).triu(1)
        kept = keys
        with torch.no_grad():
            model(keys + mask[:, :8])

    found = {name for one in evidence_of(step).rebuilt for name in one.names}
    assert found == {"mask"}


def test_constant_tensor_in_a_long_comprehension_is_found() -> None:
    model = network()

    def step() -> None:
        size = 40
        mask = torch.tensor([[float(j > i) for j in range(size)] for i in range(size)])
        model(torch.randn(4, 8) + mask[:4, :8]).sum().backward()

    found = evidence_of(step).rebuilt
    assert [one.names for one in found] == [["mask"]]


def test_constants_made_in_each_step_are_distinguished_from_changing_values() -> None:
    model = nn.Linear(8, 8)

    def step() -> None:
        table = torch.tensor([[float(i * j) for i in range(8)] for j in range(4)])
        out = torch.zeros(4)
        out[0] = torch.rand(())
        noise = torch.randn(4, 8)
        model(noise * table)

    found = evidence_of(step)
    assert [one.names for one in found.rebuilt] == [["table"]]


def test_a_table_that_a_loop_fills_in_place_is_rebuilt_with_the_lines_of_its_loop() -> None:
    model = nn.Linear(8, 8)

    def encoded(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(4, 8)
        for i in range(4):
            angle = i / 10.0
            table[i, 0] = angle
        counts = torch.zeros(4)
        for i in range(4):
            counts[i] = x[i].sum()
        return x + table

    def step() -> None:
        model(encoded(torch.randn(4, 8)))

    found = evidence_of(step).rebuilt
    assert {name for one in found for name in one.names} == {"table"}
    first = encoded.__code__.co_firstlineno
    assert {int(one.where.rpartition(":")[2]) - first for one in found} == {1, 2, 3, 4}


def test_model_outputs_for_changing_inputs_are_not_constants() -> None:
    model, prompt = nn.Linear(8, 8), torch.ones(2, 8)

    def step() -> None:
        with torch.no_grad():
            predicted = (model(torch.randn(4, 8)) < 1e9).sum(1)
            encoded = model(prompt)
        model(torch.randn(4, 8) * predicted.sum() + encoded.sum())

    found = evidence_of(step)
    assert [one.names for one in found.rebuilt] == [["encoded"]]


def test_function_with_equal_results_in_each_step_is_rebuilt() -> None:
    model = nn.Linear(8, 8)

    def positions(length: int) -> torch.Tensor:
        table = torch.zeros(length, 8)
        for i in range(0, 8, 2):
            table[:, i] = torch.sin(torch.arange(length) / 10 ** (i / 8))
        return table

    def noisy(length: int) -> torch.Tensor:
        noise = torch.randn(length)
        return torch.zeros(length) * noise

    def step() -> None:
        model(torch.randn(4, 8) + positions(4) + noisy(8))

    found = evidence_of(step).rebuilt
    assert {name for one in found for name in one.names} == {"positions(...)"}
    assert len(found) >= 4 and len({one.called_at for one in found}) == 1


def test_what_a_function_makes_several_times_in_one_step_is_made_once() -> None:
    layers, lengths = [nn.Linear(8, 8) for _ in range(3)], iter(range(4, 100))

    def distances(length: int) -> torch.Tensor:
        rows = torch.tensor([[abs(j - i) for j in range(length)] for i in range(length)])
        return rows / length

    def noise(length: int) -> torch.Tensor:
        return torch.randn(length, length)

    def step() -> None:
        length = next(lengths)
        x = torch.randn(length, 8)
        for layer in layers:
            x = layer((distances(length) + noise(length)) @ x)

    found = evidence_of(step).rebuilt
    assert {name for one in found for name in one.names} == {"distances(...)"}
    assert {one.times for one in found} == {3} and all(one.once_a_step for one in found)


def test_what_a_line_binds_several_times_in_one_step_is_made_once() -> None:
    layers = [nn.Linear(8, 8) for _ in range(3)]

    def apply(layer: nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask.nonzero()
        noise = torch.randn(6, 8)
        sums = torch.zeros(6, 8)
        sums += noise
        return torch.as_tensor(layer(x)).index_put((kept[:, 0],), x[kept[:, 0]]) + sums

    def step() -> None:
        mask, x = torch.rand(6, 1) < 0.5, torch.randn(6, 8)
        for layer in layers:
            x = apply(layer, x, mask)

    found = evidence_of(step).rebuilt
    assert [(one.names, one.times, one.once_a_step) for one in found] == [(["kept"], 3, True)]


def test_constants_are_found_after_a_long_loop_and_with_a_fixed_batch_in_training() -> None:
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        total = 0
        for number in range(2000):
            total += number
        table = torch.ones(4, 8) * 2
        loss = model(x * table).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert [one.names for one in evidence_of(step).rebuilt] == [["table"]]


def test_an_accuracy_that_stays_zero_is_no_constant() -> None:
    model = nn.Linear(8, 8)

    def accuracy(out: torch.Tensor) -> torch.Tensor:
        return (out > 1e9).float().mean()

    def step() -> None:
        x = torch.randn(4, 8)
        finite = torch.isfinite(x)
        hit = accuracy(model(x * finite).detach())
        zero = torch.zeros(4)
        model(x + hit + zero[0])

    assert [one.names for one in evidence_of(step).rebuilt] == [["zero"]]


def test_results_of_a_model_on_a_fixed_batch_are_not_rebuilt() -> None:
    model, x = nn.Linear(8, 8), torch.randn(4, 8)

    def answer() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    assert evidence_of(lambda: answer() + 0).rebuilt == []
