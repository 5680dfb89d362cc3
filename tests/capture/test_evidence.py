"""Evidence from small loops: what was computed twice, for nothing, or with the same values."""

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from boundby.capture.torch.evidence.collector import EvidenceCollector
from boundby.capture.torch.evidence.padding import lengths_of
from boundby.capture.torch.evidence.places import user_line
from boundby.capture.torch.evidence.values import fingerprint
from boundby.model.evidence import StepEvidence
from boundby.runtime.step_hooks import active_hooks
from tests.capture.evidence_steps import evidence_of, network


def test_undetached_discriminator_loss_gives_unused_generator_gradients() -> None:
    generator, judge = network(), network()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, judge)]

    def step(detached: bool) -> None:
        fake = generator(torch.randn(4, 8))
        optimizers[1].zero_grad()
        judge(fake.detach() if detached else fake).sum().backward(retain_graph=not detached)
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(generator(torch.randn(4, 8))).sum().backward()
        optimizers[0].step()

    def of_forward(found: StepEvidence) -> list[int]:
        return [len(one.nodes) for one in found.unused_gradients]

    wasted, clean = evidence_of(lambda: step(False)), evidence_of(lambda: step(True))
    assert of_forward(wasted)[0] > 4
    assert not wasted.unused_gradients[0].unowned
    # What is left: the transposes of the judge's weights in the generator's backward.
    assert of_forward(clean) in ([], [2])
    assert [one.create for one in wasted.kept_graphs] == [False]
    assert not clean.kept_graphs


def test_separate_backwards_pass_through_the_shared_graph_twice() -> None:
    trunk, heads = network(), (network(), network())
    every = [*trunk.parameters(), *heads[0].parameters(), *heads[1].parameters()]
    optimizer = torch.optim.SGD(every, lr=0.1)

    def step(together: bool, *, cleared: bool = False) -> None:
        shared = trunk(torch.randn(4, 8))
        first, second = (head(shared).sum() for head in heads)
        optimizer.zero_grad()
        if together:
            (first + second).backward()
        else:
            first.backward(retain_graph=True)
            if cleared:
                optimizer.zero_grad()
            second.backward()
        optimizer.step()

    twice = evidence_of(lambda: step(False)).repeated_backwards
    assert len(twice) == 1 and len(twice[0].nodes) >= 3
    assert not evidence_of(lambda: step(True)).repeated_backwards
    assert not evidence_of(lambda: step(False, cleared=True)).repeated_backwards


class Sparse(nn.Module):  # type: ignore[misc]
    """A model of sparse inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 2))

    def forward(self, x: Any) -> Any:
        return torch.sparse.mm(x, self.weight)


def test_batch_rows_passed_one_by_one_are_found() -> None:
    model, batch = network(), torch.randn(12, 8)
    rows = iter(range(100))

    def one_row() -> None:
        with torch.no_grad():
            model(batch[next(rows) % 12].unsqueeze(0))

    def one_sample() -> None:
        with torch.no_grad():
            model(torch.randn(1, 8))

    def chunk() -> None:
        first = 4 * (next(rows) % 3)
        with torch.no_grad():
            model(batch[first : first + 4])

    found = evidence_of(one_row).single_samples
    assert found is not None and found.samples == 12

    def pictures() -> None:
        with torch.no_grad():
            [model(torch.randn(8)[None] + one) for one in listed]

    listed = [torch.randn(8) for _ in range(6)]
    found = evidence_of(pictures).single_samples
    assert found is not None and found.samples == 6

    def one_sparse_row() -> None:
        with torch.no_grad():
            Sparse()(torch.ones(1, 8).to_sparse())

    assert evidence_of(one_sample).single_samples is None
    assert evidence_of(one_sparse_row).single_samples is None
    assert evidence_of(chunk).single_samples is None


def test_a_result_that_no_code_reads_is_unread() -> None:
    model, optimizer = network(), torch.optim.SGD([torch.ones(1)])

    def step() -> object:
        x = torch.randn(4, 8)
        features = model(x + 1)  # noqa: F841
        model(x + 2)
        first, kept = model(x + 3), []
        kept.append(model(x + 4))
        optimizer.zero_grad()
        model(x).sum().backward()
        return first.sum(), kept

    found = [one.call.where[0] for one in evidence_of(step).unread_results]
    lines = sorted(int(line.rpartition(":")[2]) for line in found)
    first = step.__code__.co_firstlineno
    assert lines == [first + 2, first + 3]


def test_a_module_that_keeps_its_result_is_called_for_it() -> None:
    model, seen = network(), []
    model[0].register_forward_hook(lambda module, args, result: seen.append(result))

    def step() -> None:
        model(torch.randn(4, 8))

    assert not evidence_of(step).unread_results


@pytest.mark.parametrize("cached", [False, True])
def test_generation_without_a_cache_extends_its_input(cached: bool) -> None:
    model = nn.Embedding(50, 50)
    ids = torch.randint(0, 50, (2, 5))

    def step() -> None:
        nonlocal ids
        with torch.no_grad():
            logits = model(ids[:, -1:] if cached else ids)
        ids = torch.cat([ids, logits[:, -1:].argmax(2)], dim=1)

    found = evidence_of(step).growing_input
    assert (found is None) == cached
    assert found is None or (found.module, found.rows) == ("Embedding", 2)


def test_the_line_that_makes_a_padded_batch_is_named() -> None:
    model = nn.Embedding(50, 8)

    def batch() -> torch.Tensor:
        ids = torch.zeros(8, 40, dtype=torch.long)
        ids[:, :10] = torch.randint(1, 50, (8, 10))
        return ids

    def step() -> None:
        made = batch()
        inputs = made[:, :-1]
        collector.call_begins(model, (inputs,), {})
        model(inputs).sum().backward()

    collector = EvidenceCollector(torch)
    step()
    collector.begin()
    for _ in range(3):
        step()
        collector.step()
    found = collector.evidence().padding
    first = batch.__code__.co_firstlineno
    assert found is not None
    assert any(line.endswith(f":{first + 1}") for line in found.where[:3])


def test_teacher_outside_the_optimizer_and_repeated_forward_are_found() -> None:
    teacher, student = network(), network()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def step() -> None:
        x = torch.randn(4, 8)
        target = teacher(x)
        loss = (student(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        student(x).argmax(1)

    found = evidence_of(step)
    (unused,) = found.unused_gradients
    assert unused.unowned and unused.parameters == 4 and unused.parts == ["Sequential"]
    (repeated,) = found.repeated
    assert repeated.updated and not repeated.same
    (graph,) = found.unused_graphs
    assert graph.call.where == repeated.call.where


def test_frozen_parts_are_named() -> None:
    layers = [nn.Linear(8, 8) for _ in range(12)]
    model = nn.Sequential(*layers[:2], nn.Sequential(*layers[2:11]), layers[11])
    optimizer = torch.optim.SGD([*layers[0].parameters(), *layers[11].parameters()], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()

    (unused,) = evidence_of(step).unused_gradients
    assert unused.parts == ["1", "2"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_target_that_follows_the_weights_uses_no_gradients(by_hand: bool) -> None:
    """One whose weights are updated with its gradients clears them."""
    model, target = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        x = torch.randn(4, 8)
        loss = (model(x) - target(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for followed, weight in zip(target.parameters(), model.parameters(), strict=True):
            if by_hand:
                followed.data -= 0.1 * followed.grad
                followed.grad = None
            else:
                followed.data.lerp_(weight.data, 0.1)

    step()
    assert bool(evidence_of(step).unused_gradients) is not by_hand


def test_validation_and_loops_over_layers_are_not_repeated_forwards() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held_out = torch.randn(6, 8)

    def step() -> None:
        loss = model(torch.randn(4, 8)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model(held_out)

    found = evidence_of(step)
    assert found.repeated == [] and found.unused_graphs == [] and found.unused_gradients == []


def test_kept_losses_are_growing_memory() -> None:
    model, kept = nn.Linear(8, 8), []

    def step(detach: bool) -> None:
        loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        kept.append(loss.detach() if detach else loss)

    found = evidence_of(lambda: step(False)).growth
    assert found is not None and found.nodes_per_step >= 1 and found.where
    kept.clear()
    assert evidence_of(lambda: step(True)).growth is None


def test_a_list_of_results_that_the_next_step_replaces_is_no_growing_memory() -> None:
    model, made = nn.Linear(8, 8), []

    def step() -> None:
        nonlocal made
        made = [model(torch.randn(4, 8)) for _ in range(3)]
        sum(one.sum() for one in made).backward()

    assert evidence_of(step, steps=5).growth is None


class Meter:
    """Keeps losses in two attributes."""

    def __init__(self) -> None:
        self.history: list[Any] = []
        self.total = torch.zeros(())

    def add(self, loss: Any) -> None:
        self.history.append(loss)

    def sum_up(self, loss: Any) -> None:
        self.total = self.total + loss


class Residual(nn.Module):  # type: ignore[misc]
    """A model that binds a name again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        x = x + self.inner(x)
        return x.sum()


@pytest.mark.parametrize("method", ["add", "sum_up"])
def test_the_line_that_keeps_losses_in_an_object_is_named(method: str) -> None:
    model, meter = Residual(), Meter()

    def step() -> None:
        loss = model(torch.randn(4, 8))
        loss.backward()
        getattr(meter, method)(loss)

    found = evidence_of(step).growth
    line = getattr(Meter, method).__code__.co_firstlineno + 1
    assert found is not None
    assert [int(one.rpartition(":")[2]) for one in found.where] == [line]


def test_steps_between_empty_cache_calls_are_counted() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = iter(range(1000))

    def step(every: int) -> None:
        if next(count) % every == 0:
            optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()

    found = evidence_of(lambda: step(2), steps=8).uncleared
    assert found is not None and found.steps_per_clear == 2
    assert evidence_of(lambda: step(1), steps=8).uncleared is None


def test_compiled_code_disables_evidence_only_while_it_exists() -> None:
    model, kept = nn.Linear(8, 8), []
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))

    def step() -> None:
        kept.append(model(torch.randn(4, 8)).sum())

    while_there = evidence_of(step).growth
    assert while_there is not None and not while_there.where
    torch._dynamo.reset()
    afterwards = evidence_of(step).growth
    assert afterwards is not None and afterwards.where


def test_equal_code_of_two_files_has_separate_lines() -> None:
    codes = [compile("x = 1", file, "exec") for file in ("/a/one.py", "/a/other.py")]
    assert codes[0] == codes[1]
    assert [user_line(code, 1) for code in codes] == ["a/one.py:1", "a/other.py:1"]


def test_settings_are_known_without_examined_steps() -> None:
    collector = EvidenceCollector(torch)
    with torch.autograd.set_detect_anomaly(True):
        found = collector.evidence()
    assert found.steps == 0
    assert found.settings.anomaly and found.settings.threads and found.settings.cores
    assert found.settings.cudnn_benchmark is False


def test_padding_is_found_from_values() -> None:
    ids = torch.randint(1, 99, (8, 64))
    assert lengths_of(torch, ids) is None
    for row in range(8):
        ids[row, 10 + row :] = 0
    lengths = [10 + row for row in range(8)]
    assert lengths_of(torch, ids) == (64, lengths)
    assert lengths_of(torch, ids.flip(1)) == (64, lengths)
    assert lengths_of(torch, torch.ones(8, 64, dtype=torch.int64)) is None
    # Texts beside none, as for guidance.
    words = torch.randint(1, 99, (8, 64))
    assert lengths_of(torch, torch.cat([torch.zeros_like(words), words])) is None


def test_padding_of_vectors_is_found_from_zeros() -> None:
    lengths = [10 + row for row in range(8)]
    sound, words = torch.randn(8, 64), torch.randn(8, 64, 5)
    for row, length in enumerate(lengths):
        sound[row, length:] = words[row, length:] = 0
    for batch in (sound, words, words.mT, sound.flip(1)):
        assert lengths_of(torch, batch) == (64, lengths)
    # Activations, features that are not in use, and counts.
    assert lengths_of(torch, torch.randn(8, 64).relu()) is None
    assert lengths_of(torch, torch.randn(8, 64) * (torch.arange(64) < 40)) is None
    assert lengths_of(torch, (torch.rand(8, 64) < 0.1).float()) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_fingerprints_of_equal_values_are_equal(dtype: torch.dtype) -> None:
    one = torch.ones(3, 4).to(dtype)
    assert fingerprint(torch, one) == fingerprint(torch, one.clone().t().contiguous().t())
    assert fingerprint(torch, one) != fingerprint(torch, torch.zeros(3, 4).to(dtype))
    assert fingerprint(torch, torch.ones(2, 2).to_sparse()) is None


def test_evidence_collection_restores_the_program() -> None:
    def losses(watched: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters())
        found = []

        def step() -> None:
            loss = F.mse_loss(model(torch.randn(4, 8)), torch.ones(4, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())

        if watched:
            evidence_of(step, steps=5)
        else:
            for _ in range(6):
                step()
        return found

    before = torch.autograd._engine_run_backward, sys.gettrace(), len(active_hooks)
    assert losses(True) == losses(False)
    assert (torch.autograd._engine_run_backward, sys.gettrace(), len(active_hooks)) == before
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
