"""The chip of a plan: its datasheet machine, its links to other chips, its sustained rates."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

from boundby.hardware import datasheet
from boundby.hardware.datasheet_machine import machine_of
from boundby.model import Machine, store
from boundby.model.errors import BoundbyError
from boundby.plan import assumptions

_GIGABYTE = 1e9  # definition
# Words in a chip's name that do not distinguish it from another.
_FILLER = {
    *("nvidia", "amd", "google", "aws", "tpu", "gpu", "instinct", "rtx", "geforce", "hbm3"),
    *("hbm3e", "dgx", "hgx", "nvl72"),
}
_ALIASES = {
    "trn1": "trainium1",
    "trn1n": "trainium1",
    "trainium": "trainium1",
    "inf2": "inferentia2",
    "sxm2": "sxm",
    "sxm4": "sxm",
    "sxm5": "sxm",
    "v7": "v7x",
    "tpu7x": "v7x",
    "v5litepod": "v5e",
    "trillium": "v6e",
    "bse": "server",
    "ironwood": "v7x",
}
_SIZE = re.compile(r"\d+gb")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Target:
    """One chip in a plan. `sustained` are matrix rates at the power limit, by unit.

    It is compared by identity, so that results for it can be looked up quickly.
    """

    name: str
    machine: Machine
    fabric: datasheet.Fabric
    memory_bytes: float
    link: float  # bytes/s to the other chips of its domain, one way, all links together
    sustained: dict[str, float] = field(default_factory=dict)

    @property
    def is_tpu(self) -> bool:
        return self.fabric.kind == "torus"

    def unit_of(self, unit: str) -> str:
        """The matrix unit for products of this type: its own or that of the next wider type."""
        wider = assumptions.WIDER_UNITS.get(unit, ())
        names = (unit, *wider, "vector.float32")
        return next((name for name in names if self.machine.rate(name)), unit)

    def peak(self, unit: str) -> float:
        """The printed rate of a matrix unit; without one, of the next wider type."""
        rate = self.machine.rate(self.unit_of(unit))
        if rate:
            return rate
        raise BoundbyError(f"{self.name} has no figure for {unit.removeprefix('matmul.')}")

    def sustained_rate(self, unit: str) -> float:
        """The rate of a long series of large products on this unit."""
        unit = self.unit_of(unit)
        if unit in self.sustained:
            return self.sustained[unit]
        share = assumptions.sustained_share(self.machine.vendor or "", unit)
        known = self.sustained.get("matmul.bfloat16")
        if known and unit in ("matmul.float16", "matmul.bfloat16"):
            return known
        return self.peak(unit) * share

    @property
    def memory_rate(self) -> float:
        return _memory_rate(self)


@functools.cache
def _memory_rate(target: Target) -> float:
    rate = target.machine.rate("memory.dram")
    if not rate:
        raise BoundbyError(f"{target.name} has no memory bandwidth")
    return rate


def find(name: str) -> Target:
    """The chip of this name, or a measured machine saved by `boundby machine --json`."""
    if name.endswith(".json"):
        return _measured(Path(name))
    chip = _match(name)
    return _target(chip, machine_of(chip))


def printed(machine: Machine) -> Target | None:
    """The chip of a machine with its printed rates; None if it is not in the table."""
    chip = _chip_of(machine)
    return _target(chip, machine_of(chip)) if chip else None


def _chip_of(machine: Machine) -> datasheet.Chip | None:
    chip = datasheet.find_chip(machine.chip or machine.device, machine.memory_bytes)
    return chip or next((one for one in datasheet.chips() if one.name == machine.chip), None)


def _measured(path: Path) -> Target:
    machine = store.read(path, Machine, "a machine")
    chip = _chip_of(machine)
    if chip is None:
        raise BoundbyError(
            f"{path} describes {machine.device}, which is not in the table of accelerators: "
            "a machine with one of them would"
        )
    target = _target(chip, machine)
    rates = {
        roof.name.removesuffix(".sustained"): roof.value
        for roof in machine.roofs
        if roof.name.startswith("matmul.") and roof.name.endswith(".sustained")
    }
    return dataclasses.replace(target, sustained={**target.sustained, **rates})


def _target(chip: datasheet.Chip, machine: Machine) -> Target:
    # Cards without a fabric communicate over PCIe; a bridge joins two of them only.
    link = chip.figures.get("network.link" if chip.fabric else "host_link.d2h")
    fabric = chip.fabric or datasheet.Fabric(
        kind="pcie",
        domain=assumptions.PCIE_DOMAIN,
        egress=assumptions.PCIE_EGRESS,
        units=assumptions.UNKNOWN_UNITS,
        source="pcie4",
    )
    return Target(
        name=chip.name,
        machine=machine,
        fabric=fabric,
        memory_bytes=chip.memory_gb * _GIGABYTE,
        link=link.value if link else assumptions.PCIE_EGRESS,
        sustained={unit: figure.value for unit, figure in chip.sustained.items()},
    )


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _match(name: str) -> datasheet.Chip:
    """The chip whose name contains all requested words; a memory size selects the nearest."""
    words = [_ALIASES.get(word, word) for word in _words(name) if word not in _FILLER]
    sizes = [float(word[:-2]) for word in words if _SIZE.fullmatch(word)]
    words = [word for word in words if not _SIZE.fullmatch(word)]
    found = [chip for chip in datasheet.chips() if _has_all(chip.name, words)]
    if not found and words and words[-1].isdigit():  # "a100-40"
        found = [chip for chip in datasheet.chips() if _has_all(chip.name, words[:-1])]
        found = [chip for chip in found if _is_card(chip) and chip.memory_gb == int(words[-1])]
    if words and found and sizes:
        return min(found, key=lambda chip: abs(chip.memory_gb - sizes[0]))
    if words and found:
        # The largest of the form factor listed first: "a100" is the 80 GB SXM board.
        same = [chip for chip in found if _form(chip.name) == _form(found[0].name)]
        return max(same, key=lambda chip: chip.memory_gb)
    known = {"".join(_words(chip.name)): chip.name for chip in datasheet.chips()}
    near = difflib.get_close_matches("".join(_words(name)), list(known), n=3, cutoff=0.3)
    meant = ", ".join(known[one] for one in near) or "h100, v5p, b200, mi300x"
    raise BoundbyError(f"no chip is called {name}: nearest are {meant}")


def _is_card(chip: datasheet.Chip) -> bool:
    """Whether it is no part of a torus, whose names end in the chips of a slice."""
    return chip.fabric is None or chip.fabric.kind != "torus"


def _form(chip_name: str) -> list[str]:
    return [word for word in _words(chip_name) if not _SIZE.fullmatch(word)]


def _has_all(chip_name: str, words: list[str]) -> bool:
    parts = _words(chip_name)
    joined = {"".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)}
    return all(word in joined for word in words)
