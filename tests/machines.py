"""Machines with round figures, so that a test's arithmetic can be done by hand."""

from boundby.model import Machine, MemoryLevel, Overheads, Roof


def roof(name: str, value: float, unit: str = "FLOP/s") -> Roof:
    return Roof(name=name, value=value, unit=unit, source="measured")


def round_machine() -> Machine:
    """1 PFLOP/s bf16, 50 TFLOP/s vector, 10 MB of cache at 10 TB/s, memory at 5 TB/s."""
    return Machine(
        device="Round 1",
        kind="cuda",
        driver="1.0",
        torch="2.0",
        threads=8,
        measured_at="2026-01-01T00:00:00+00:00",
        roofs=[
            roof("matmul.bfloat16", 1e15),
            roof("matmul.float32", 5e13),
            roof("vector.float32", 5e13),
            roof("memory.cache", 1e13, "B/s"),
            roof("memory.dram", 5e12, "B/s"),
        ],
        levels=[
            MemoryLevel(roof="memory.cache", capacity=10_000_000),
            MemoryLevel(roof="memory.dram", capacity=None),
        ],
        overheads=Overheads(
            eager_op_ns=8000, launch_ns=4000, shortest_kernel_ns=1000, python_add_ns=25
        ),
    )
