"""Time of one collective on a group of chips, by algorithm, size and place.

V is the whole array in bytes, n the chips, W the link rate of one chip, m the domains (nodes).
A collective is an operator on links: each function is documented by its formula, which
`boundby plan --explain NAME` prints.
"""

from __future__ import annotations

import math

from boundby.plan import assumptions
from boundby.plan.chips import Target
from boundby.plan.mesh import Group

_S = 1e9  # ns


def all_gather_ns(size: float, group: Group, target: Target) -> float:
    """All-gather: every chip ends with all V bytes.

    Switch or mesh: a ring, V (n-1)/n over the slower of W and the NICs that a domain's chips of
    the group have, and a latency for each of its n-1 steps, longer where it leaves a domain.
    Small messages take a protocol with shorter steps and a part of the rate.
    Torus: V/(2 u k) on k closed rings of links of u bytes/s each way, V (n-1)/(n u k) on open ones.
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        return _torus_ns(size, group, target) + _hops_ns(group)
    return assumptions.COLLECTIVE_START_NS + _ring_ns(size, group, target)


def reduce_scatter_ns(size: float, group: Group, target: Target) -> float:
    """Reduce-scatter: the sum of n arrays of V bytes, each chip keeps its part. As all-gather."""
    return all_gather_ns(size, group, target)


def all_reduce_ns(size: float, group: Group, target: Target) -> float:
    """All-reduce: a reduce-scatter and an all-gather, 2 V (n-1)/n over a ring's slowest link.

    Where the switch sums, V goes up and V comes down at 1.2 W together. A tree of the domains has
    the bytes of a ring, and 2 log2 m steps between m domains instead of 2 (m-1).
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        return 2 * (_torus_ns(size, group, target) + _hops_ns(group))
    ring = 2 * _ring_ns(size, group, target)
    return assumptions.COLLECTIVE_START_NS + min(ring, _tree_ns(size, group, target))


def all_to_all_ns(size: float, group: Group, target: Target) -> float:
    """All-to-all: each chip sends a different n-th of its V/n bytes to every other chip.

    Switch: V (n-1)/n^2 / W inside; V/n (1 - local/n) through one NIC between domains.
    Torus: V/(4 * 2u) on a closed ring (a quarter of the all-gather), half of it on an open one.
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        part = 4 if group.wraps else 2
        return _torus_ns(size, group, target) / part + _hops_ns(group)
    own = size / group.size
    rate = _inside_rate(group, target) or math.inf
    inside = own * (group.local - 1) / group.size / rate
    egress = target.fabric.egress * assumptions.EGRESS_SHARE
    between = own * (1 - group.local / group.size) / egress
    return max(inside, between) * _S + _exchange_start_ns(group)


def dispatch_ns(size: float, copies: int, group: Group, target: Target) -> float:
    """Dispatch: V bytes of tokens, each to `copies` experts spread evenly over the group.

    Inside a domain each copy is sent: V k (l-1)/n / W with l of the n chips there. A domain that
    holds several of a token's experts gets it once: of m domains (m-1)(1 - (1-1/m)^k) are reached.
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        return all_to_all_ns(size * copies * group.size, group, target)
    rate = _inside_rate(group, target) or math.inf
    inside = size * copies * (group.local - 1) / group.local / rate
    domains = group.domains
    reached = (domains - 1) * (1 - (1 - 1 / domains) ** copies) if domains > 1 else 0.0
    between = size * reached / (target.fabric.egress * assumptions.EGRESS_SHARE)
    return max(inside, between) * _S + _exchange_start_ns(group)


def send_ns(size: float, *, crosses: bool, target: Target) -> float:
    """Point to point: V / W; where it leaves the domain, at half the rate of one NIC."""
    if not size:
        return 0.0
    if target.fabric.kind == "torus":
        rate = (target.fabric.axis_link or target.link) * assumptions.LINK_SHARE["torus"]
        return size / rate * _S + assumptions.HOP_NS
    rate = target.link * assumptions.LINK_SHARE[target.fabric.kind]
    if crosses:
        rate = min(rate, target.fabric.egress * assumptions.SEND_EGRESS_SHARE)
    return size / rate * _S + assumptions.COLLECTIVE_START_NS


def _exchange_start_ns(group: Group) -> float:
    """Every chip sends to all others at once: one step, to another domain if there is one."""
    bulk = assumptions.RING_PROTOCOLS[0]
    return assumptions.COLLECTIVE_START_NS + (
        bulk.between_ns if group.domains > 1 else bulk.inside_ns
    )


def _ring_ns(size: float, group: Group, target: Target) -> float:
    """V (n-1)/n over the slowest link of the ring, and its n-1 steps."""
    rate = _inside_rate(group, target) if group.local > 1 else math.inf
    if group.domains > 1:
        rate = min(rate, _egress_rate(group, target))
    between = group.domains - 1
    inside = group.size - 1 - between
    sent = size * (group.size - 1) / group.size / rate * _S
    return min(
        sent / one.share + inside * one.inside_ns + between * one.between_ns
        for one in assumptions.RING_PROTOCOLS
    )


def _tree_ns(size: float, group: Group, target: Target) -> float:
    """The time of an all-reduce up and down a tree of the domains; inside a domain, along a chain
    of its chips or through the switch."""
    in_switch = target.fabric.reduces and group.local > assumptions.SWITCH_REDUCE_ABOVE
    if not in_switch and group.domains == 1:
        return math.inf
    share = (group.size - 1) / group.size
    steps, rate = group.local - 1, _inside_rate(group, target)
    if in_switch:
        share = (group.domains - 1) / group.domains
        steps, rate = 1, target.link * assumptions.SWITCH_REDUCE_SHARE
    inside = size / rate * _S if group.local > 1 else 0.0
    between = size * share / _egress_rate(group, target) * _S if group.domains > 1 else 0.0
    levels = (group.domains - 1).bit_length()
    one = assumptions.TREE_PROTOCOL
    return 2 * (max(inside, between) / one.share + steps * one.inside_ns + levels * one.between_ns)


def _inside_rate(group: Group, target: Target) -> float:
    """Bytes/s that a chip's links reach inside a domain: all in a switch, those to its members
    in a mesh."""
    share = assumptions.LINK_SHARE[target.fabric.kind]
    if target.fabric.kind != "mesh":
        return target.link * share
    return target.link * share * min(1.0, (group.local - 1) / (target.fabric.domain - 1))


def _egress_rate(group: Group, target: Target) -> float:
    """Bytes/s that the group's chips of one domain send to another."""
    return group.local * target.fabric.egress * assumptions.EGRESS_SHARE


def _torus_ns(size: float, group: Group, target: Target) -> float:
    share = assumptions.LINK_SHARE["torus"]
    link = (target.fabric.axis_link or target.link) * share * group.rings
    local = group.local
    inside = size / (2 * link) if group.wraps else size * (local - 1) / local / link
    between = 0.0
    if group.domains > 1:
        between = size * (group.domains - 1) / group.domains / _egress_rate(group, target)
    return max(inside if local > 1 else 0.0, between) * _S


def _hops_ns(group: Group) -> float:
    """Hops from one end of the group to the other, or half of them around a ring."""
    side = math.pow(group.local, 1 / group.rings)
    hops = side / 2 if group.wraps else side - 1
    return group.rings * hops * assumptions.HOP_NS
