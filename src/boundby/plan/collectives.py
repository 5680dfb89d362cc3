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

    Switch or mesh: V (l-1)/l / W between the l chips of a domain; between domains V (m-1)/m over
    the NICs of the group's chips in one domain. The slower of both. Torus: V/(2 u k) on k closed
    rings of links of u bytes/s each way, V (n-1)/(n u k) on open ones.
    """
    if group.size <= 1 or not size:
        return 0.0
    return max(_inside_ns(size, group, target), _between_ns(size, group, target)) + _latency_ns(
        group, target
    )


def reduce_scatter_ns(size: float, group: Group, target: Target) -> float:
    """Reduce-scatter: the sum of n arrays of V bytes, each chip keeps its part. As all-gather."""
    return all_gather_ns(size, group, target)


def all_reduce_ns(size: float, group: Group, target: Target) -> float:
    """All-reduce: a reduce-scatter and an all-gather, 2 V (n-1)/n / W.

    A whole domain of eight and more reduces in the switch where it can: 1.07 W instead of 0.8 W.
    """
    if group.size <= 1 or not size:
        return 0.0
    inside = 2 * _inside_ns(size, group, target)
    if target.fabric.reduces and group.local >= 8:
        gain = assumptions.LINK_SHARE["switch"] / assumptions.SWITCH_REDUCE_SHARE
        inside *= gain
    return max(inside, 2 * _between_ns(size, group, target)) + 2 * _latency_ns(group, target)


def all_to_all_ns(size: float, group: Group, target: Target) -> float:
    """All-to-all: each chip sends a different n-th of its V/n bytes to every other chip.

    Switch: V (n-1)/n^2 / W inside; V/n (1 - local/n) through one NIC between domains.
    Torus: V/(4 * 2u) on a closed ring (a quarter of the all-gather), half of it on an open one.
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        return _inside_ns(size, group, target) / (4 if group.wraps else 2) + _latency_ns(
            group, target
        )
    own = size / group.size
    rate = _link(group, target) * assumptions.LINK_SHARE[target.fabric.kind] or math.inf
    inside = own * (group.local - 1) / group.size / rate
    egress = target.fabric.egress * assumptions.EGRESS_SHARE
    between = own * (1 - group.local / group.size) / egress
    return max(inside, between) * _S + _latency_ns(group, target)


def dispatch_ns(size: float, copies: int, group: Group, target: Target) -> float:
    """Dispatch: V bytes of tokens, each to `copies` experts spread evenly over the group.

    Inside a domain each copy is sent: V k (l-1)/n / W with l of the n chips there. A domain that
    holds several of a token's experts gets it once: of m domains (m-1)(1 - (1-1/m)^k) are reached.
    """
    if group.size <= 1 or not size:
        return 0.0
    if target.fabric.kind == "torus":
        return all_to_all_ns(size * copies * group.size, group, target)
    rate = _link(group, target) * assumptions.LINK_SHARE[target.fabric.kind] or math.inf
    inside = size * copies * (group.local - 1) / group.local / rate
    domains = group.domains
    reached = (domains - 1) * (1 - (1 - 1 / domains) ** copies) if domains > 1 else 0.0
    between = size * reached / (target.fabric.egress * assumptions.EGRESS_SHARE)
    return max(inside, between) * _S + _latency_ns(group, target)


def send_ns(size: float, *, crosses: bool, target: Target) -> float:
    """Point to point: V / W, over one NIC where it leaves the domain."""
    if not size:
        return 0.0
    if target.fabric.kind == "torus":
        rate = (target.fabric.axis_link or target.link) * assumptions.LINK_SHARE["torus"]
        return size / rate * _S + assumptions.HOP_NS
    rate = target.link * assumptions.LINK_SHARE[target.fabric.kind]
    if crosses:
        rate = min(rate, target.fabric.egress * assumptions.EGRESS_SHARE)
    return size / rate * _S + assumptions.COLLECTIVE_LATENCY_NS


def _inside_ns(size: float, group: Group, target: Target) -> float:
    if group.local <= 1:
        return 0.0
    share = assumptions.LINK_SHARE[target.fabric.kind]
    if target.fabric.kind == "torus":
        link = (target.fabric.axis_link or target.link) * share * group.rings
        local = group.local
        return size / (2 * link) * _S if group.wraps else size * (local - 1) / local / link * _S
    # What comes from other domains comes through each chip's own NIC.
    return size * (group.local - 1) / group.local / (_link(group, target) * share) * _S


def _link(group: Group, target: Target) -> float:
    """A chip's links to the group: all of them in a switch, those to its members in a mesh."""
    if target.fabric.kind != "mesh":
        return target.link
    return target.link * min(1.0, (group.local - 1) / (target.fabric.domain - 1))


def _between_ns(size: float, group: Group, target: Target) -> float:
    if group.domains <= 1:
        return 0.0
    rate = group.local * target.fabric.egress * assumptions.EGRESS_SHARE
    return size * (group.domains - 1) / group.domains / rate * _S


def _latency_ns(group: Group, target: Target) -> float:
    if target.fabric.kind == "torus":
        side = math.pow(group.local, 1 / group.rings)
        hops = side / 2 if group.wraps else side - 1
        return group.rings * hops * assumptions.HOP_NS
    # A tree crosses the nodes in log2 steps; a ring of many nodes would not be chosen.
    crossings = max(0, group.domains - 1).bit_length()
    return assumptions.COLLECTIVE_LATENCY_NS + crossings * assumptions.NODE_LATENCY_NS
