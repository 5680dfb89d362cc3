"""Rows of a table of collective micro-benchmarks, as collectives that `plan` can predict.

Columns: collective, message_bytes, algbw_gbps, chips_total, chip; nodes if there are several. The
message is the whole array: the receive buffer of an all-gather or all-to-all.
"""

from __future__ import annotations

import dataclasses
import re

import msgspec

from boundby.model.estimate import Estimate
from boundby.model.plan import PlanRow
from boundby.plan import assumptions, chips, collectives
from boundby.plan.chips import Target
from boundby.plan.mesh import Group
from boundby.plan.row_values import Row, RowError, number, required

# Messages that reach the links' rate; chips of an ordinary server.
_LARGE, _NODE = 100e6, 16
_COLLECTIVES = {
    "all_gather": collectives.all_gather_ns,
    "reduce_scatter": collectives.reduce_scatter_ns,
    "all_reduce": collectives.all_reduce_ns,
    "all_to_all": collectives.all_to_all_ns,
}


def predict(row: Row) -> PlanRow:
    """Bytes of the message over its time, in GB/s, as nccl-tests prints `algbw`."""
    measured, size = number(row, "algbw_gbps"), number(row, "message_bytes")
    if not measured or measured < 0 or not size or size < 0:
        raise RowError("no algbw_gbps or no message_bytes")
    name = row.get("collective") or ""
    target = chips.find(row.get("chip") or "")
    count = required(row, "chips_total")
    nodes = round(number(row, "nodes") or 1)
    if count < 2 or nodes < 1 or count % nodes:
        raise RowError(f"{count} chips on {nodes} nodes")
    words = f"{row.get('interconnect') or ''} {row.get('notes') or ''}"
    local = _local(count, nodes, target)
    target = _with_egress(target, words, count // nodes)
    where = Group(size=count, local=local, domains=count // local, wraps="no wrap" not in words)
    if name == "sendrecv":
        ns = collectives.send_ns(size, crosses=where.domains > 1, target=target)
    elif name in _COLLECTIVES:
        # Every chip of an all-to-all has such a buffer.
        whole = size * count if name == "all_to_all" else size
        ns = _COLLECTIVES[name](whole, where, target)
    else:
        raise RowError(f"unknown collective {name or '(none)'}")
    rate = size / ns
    wide = 1 + assumptions.COLLECTIVE_UNCERTAINTY
    source = row.get("source") or ""
    return PlanRow(
        id=row.get("id") or f"{source} {name} {count} {size:g}",
        source=source,
        predicted=Estimate(low=rate / wide, expected=rate, high=rate * wide),
        measured=measured,
        unit="GB/s",
        kind=f"{'one domain' if where.domains == 1 else 'several domains'}, "
        f"{'from' if size >= _LARGE else 'below'} 100 MB",
    )


def _local(count: int, nodes: int, target: Target) -> int:
    """Chips of the group in one domain: those of a node, or of a rack that is one domain."""
    local = count // nodes
    if target.fabric.domain <= _NODE:
        return local
    return max(
        ways
        for ways in range(local, count + 1)
        if count % ways == 0 and (ways == local or ways <= target.fabric.domain)
    )


def _with_egress(target: Target, words: str, chips_per_node: int) -> Target:
    """The chip with its share of the NICs in the row, as in "8x400 Gb/s"."""
    found = re.search(r"(\d+)x\s?([^,+()]*?)(\d+) Gb/s", words)
    if not found or target.fabric.kind == "torus":
        return target
    egress = int(found[1]) * int(found[3]) * 1e9 / 8 / max(1, chips_per_node)
    fabric = msgspec.structs.replace(target.fabric, egress=egress)
    return dataclasses.replace(target, fabric=fabric)
