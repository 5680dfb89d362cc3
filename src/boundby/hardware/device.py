"""Finds a device and its name."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from boundby.model import Record
from boundby.model.assumptions.device import LAST_LEVEL_BYTES
from boundby.model.errors import CANNOT_MEASURE, BoundbyError

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_CPU_INFO = Path("/proc/cpuinfo")
# Linux names an ARM core by its vendor and a number.
_ARM_CORES = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1",
    ("0x41", "0xd40"): "Neoverse V1",
    ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2",
    ("0x41", "0xd84"): "Neoverse V3",
    ("0x41", "0xd8e"): "Neoverse N3",
}
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


class Cache(Record, frozen=True, kw_only=True):
    """One cache level as a whole: the capacity for all threads in use."""

    name: str
    capacity: int


class Device(Record, frozen=True, kw_only=True):
    """A device as the machine names it. The first five fields are the key of saved roofs."""

    name: str
    kind: str
    driver: str
    torch: str
    threads: int
    index: int = 0
    memory_bytes: int
    caches: tuple[Cache, ...]  # smallest first; the last one is the last level
    processors: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The name that torch uses for it."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def identify(requested: str | None = None) -> Device:
    """The requested device; by default the accelerator if there is one, otherwise the CPU."""
    try:
        import torch
    except ImportError as error:
        raise BoundbyError(
            "measuring this machine needs PyTorch, and it cannot be imported here "
            f"({error}); install it with: pip install torch",
            exit_code=CANNOT_MEASURE,
        ) from None
    kind, index = _parse(requested, torch)
    if kind == "cpu":
        return _cpu(torch, _unsupported_accelerator(torch) if requested is None else None)
    if not torch.cuda.is_available():
        raise BoundbyError(
            f"no CUDA device is available to torch {torch.__version__}; try --device cpu"
        )
    device_count = torch.cuda.device_count()
    if index >= device_count:
        raise BoundbyError(
            f"no device cuda:{index}: this machine has {device_count} "
            f"(cuda:0 to cuda:{device_count - 1})"
        )
    properties = torch.cuda.get_device_properties(index)
    return Device(
        name=properties.name,
        kind="cuda",
        driver=_cuda_driver(torch),
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        index=index,
        memory_bytes=properties.total_memory,
        caches=(Cache(name="memory.cache", capacity=properties.L2_cache_size),),
        processors=properties.multi_processor_count,
    )


def _parse(requested: str | None, torch: Any) -> tuple[str, int]:
    if requested is None:
        return ("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else ("cpu", 0)
    kind, _, index = requested.partition(":")
    if kind in ("mps", "xpu", "xla", "hpu", "mtia"):
        raise BoundbyError(f"{kind} devices are not supported yet; the CPU is: --device cpu")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise BoundbyError(f"no such device: {requested!r} (cpu, cuda or cuda:N)")
    return kind, int(index or 0)


def _unsupported_accelerator(torch: Any) -> str | None:
    for kind in ("mps", "xpu"):
        backend = getattr(torch, kind, None)
        check = getattr(backend, "is_available", None)
        if check is not None and check():
            return f"the {kind} accelerator is not supported yet; these are the CPU's roofs"
    return None


def _cpu(torch: Any, warning: str | None) -> Device:
    import psutil

    threads: int = torch.get_num_threads()
    caches = cpu_caches(threads)
    warnings = [warning] if warning else []
    if not caches:
        caches = (Cache(name="memory.cache", capacity=LAST_LEVEL_BYTES.value),)
        warnings.append("the system does not tell its cache sizes; 32 MiB is assumed")
    return Device(
        name=cpu_name(),
        kind="cpu",
        driver=platform.release(),
        torch=str(torch.__version__),
        threads=threads,
        memory_bytes=psutil.virtual_memory().total,
        caches=caches,
        processors=os.cpu_count() or 1,
        warnings=tuple(warnings),
    )


def cpu_name() -> str:
    try:
        cpu_info = _CPU_INFO.read_text(errors="replace")
    except OSError:
        cpu_info = ""
    # Of the first core: others may be of another kind.
    fields: dict[str, str] = {}
    for line in cpu_info.splitlines():
        field, _, value = line.partition(":")
        fields.setdefault(field.strip(), " ".join(value.split()))
    part = fields.get("CPU implementer", ""), fields.get("CPU part", "")
    named = fields.get("model name") or _ARM_CORES.get(part)
    return named or platform.processor() or platform.machine()


def cpu_caches(threads: int) -> tuple[Cache, ...]:
    """The second and the last level, all instances that the threads can use."""
    levels: dict[int, int] = {}
    for folder in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            text = (folder / "size").read_text().strip()
            sharers = _count_cpus((folder / "shared_cpu_list").read_text().strip())
        except (OSError, ValueError):
            continue
        instance_bytes = int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)
        levels[level] = instance_bytes * max(1, -(-threads // sharers))
    if not levels:
        return ()
    last = max(levels)
    caches = [Cache(name="memory.cache", capacity=levels[last])]
    if last > 2 and 2 in levels:
        caches.insert(0, Cache(name="memory.l2", capacity=levels[2]))
    return tuple(caches)


def _count_cpus(cpu_list: str) -> int:
    total = 0
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _cuda_driver(torch: Any) -> str:
    """The driver's version, from NVML if it is installed, otherwise from the driver's own file."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
        return version.decode() if isinstance(version, bytes) else str(version)
    except (ImportError, OSError, RuntimeError):
        pass
    except Exception as error:
        if type(error).__module__ != "pynvml":
            raise
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next(word for word in words if word[0].isdigit() and word.count(".") >= 1)
    except (OSError, StopIteration):
        return str(torch.version.cuda or torch.version.hip)
