"""Formulas of the collectives, beside hand arithmetic and published measurements."""

import pytest

from boundby.plan import chips, collectives
from boundby.plan.mesh import Group, Mesh, group

MB = 10**6


def _node(size: int) -> Group:
    return Group(size=size, local=size, domains=1)


def test_all_gather_in_a_node_moves_all_but_the_own_shard() -> None:
    """17 GB over 8 H100: 361 GB/s of bus bandwidth was measured, 0.8 of 450."""
    size = 17.18e9
    ns = collectives.all_gather_ns(size, _node(8), chips.find("h100"))
    assert size * 7 / 8 / (ns * 1e-9) == pytest.approx(361.9e9, rel=0.02)


def test_all_reduce_between_nodes_uses_the_nics_of_the_group() -> None:
    """80 H100 on ten nodes: 320 GB/s of bus bandwidth was measured on 8 x 50 GB/s."""
    where = Group(size=80, local=8, domains=10)
    size = 17.18e9
    ns = collectives.all_reduce_ns(size, where, chips.find("h100"))
    assert 2 * size * 79 / 80 / (ns * 1e-9) == pytest.approx(320e9, rel=0.2)


def test_closed_torus_ring_uses_both_directions() -> None:
    ns = collectives.all_gather_ns(
        2 * 2048 * 8192, Group(size=16, local=16, domains=1, wraps=True), chips.find("v5e")
    )
    assert ns == pytest.approx(2 * 2048 * 8192 / (9e10 * 0.95) * 1e9 + 8000, rel=0.001)


def test_faster_links_are_never_slower() -> None:
    size = 100 * MB
    times = [
        collectives.all_gather_ns(size, _node(8), chips.find(one))
        for one in ("a100", "h100", "b200")
    ]
    assert times == sorted(times, reverse=True)


def test_one_chip_has_no_communication() -> None:
    for collective in (collectives.all_gather_ns, collectives.all_to_all_ns):
        assert collective(MB, _node(1), chips.find("h100")) == 0


def test_axes_inside_and_across_nodes_are_distinguished() -> None:
    mesh = Mesh(tensor=8, fsdp=16, pipeline=2)
    h100 = chips.find("h100")
    assert group(mesh, "tensor", h100).domains == 1
    assert group(mesh, "fsdp", h100) == Group(size=16, local=1, domains=16)
    assert group(Mesh(fsdp=64), "fsdp", h100) == Group(size=64, local=8, domains=8)


def test_token_is_sent_once_per_node_of_its_experts() -> None:
    h100 = chips.find("h100")
    where = Group(size=32, local=8, domains=4)
    one = collectives.dispatch_ns(MB * 100, 1, where, h100)
    eight = collectives.dispatch_ns(MB * 100, 8, where, h100)
    assert eight < 4 * one


def test_ring_latency_grows_with_its_chips() -> None:
    h100 = chips.find("h100")
    few = collectives.all_gather_ns(MB, Group(size=16, local=8, domains=2), h100)
    many = collectives.all_gather_ns(MB, Group(size=256, local=8, domains=32), h100)
    assert many > 5 * few


def test_small_all_reduce_of_many_nodes_uses_a_tree() -> None:
    """Steps grow with the logarithm of the nodes, not with their number: 64 times as many here."""
    h100 = chips.find("h100")
    few = collectives.all_reduce_ns(64, Group(size=64, local=8, domains=8), h100)
    many = collectives.all_reduce_ns(64, Group(size=4096, local=8, domains=512), h100)
    assert many < 10 * few


def test_in_switch_all_reduce_does_not_grow_with_chips() -> None:
    """nccl-tests on H200: 258 to 275 GB/s with five to eight chips."""
    h200 = chips.find("h200")
    assert collectives.all_reduce_ns(8e9, _node(6), h200) == collectives.all_reduce_ns(
        8e9, _node(8), h200
    )
