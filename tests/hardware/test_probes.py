"""The probes' arithmetic, on made-up times; what they measure is in benchmarks/."""

import platform
import random
from pathlib import Path

import pytest

from boundby.hardware import device as device_module
from boundby.hardware import measure
from boundby.hardware.device import Cache, Device, _count_cpus
from boundby.hardware.probes import gaps, matmul, memory, vector
from boundby.hardware.stopwatch import CudaStopwatch, Timing, Workload, stopwatch_for
from boundby.model import Point, Roof

MIB = 1024**2


def device(kind: str = "cuda") -> Device:
    return Device(
        name="Round 1",
        kind=kind,
        driver="1",
        torch="2",
        threads=2,
        memory_bytes=10**11,
        caches=(Cache(name="memory.cache", capacity=60 * MIB),),
    )


def points(bandwidth: float, t0_ns: float, sizes: list[int], noise: float = 0.0) -> list[Point]:
    made = []
    rng = random.Random(0)
    for size in sizes:
        ns = (t0_ns + size / bandwidth * 1e9) * (1 + rng.uniform(-noise, noise))
        made.append(Point(size=size, value=size / ns * 1e9, ns=ns))
    return made


def test_gap_is_wall_time_minus_kernel_time() -> None:
    """Ten kernels of 100 us in all: 109 in a queue, 98 in a graph."""
    queued, graphed = (Timing(ns=ns, spread=0.0, samples=9) for ns in (109_000, 98_000))
    queue, graph = gaps.gaps_of(queued, graphed, 100_000, 10)
    assert [queue.ns, graph.ns] == pytest.approx([900, -200])
    # A profiler whose kernels take longer than all of it: the graph is as much closer as it was.
    queue, graph = gaps.gaps_of(queued, graphed, 110_000, 10)
    assert [queue.ns, graph.ns] == pytest.approx([0, -1100])


def test_slope_is_separated_from_the_fixed_cost() -> None:
    """1 us of fixed cost makes a 4 MB copy look like 2.2 TB/s on a 5 TB/s memory."""
    line = memory.fit(points(5e12, 1000, [4 * MIB, 8 * MIB, 16 * MIB, 30 * MIB]))
    assert line.bytes_per_s == pytest.approx(5e12)
    assert line.t0_ns == pytest.approx(1000)


def test_noise_moves_the_slope_little() -> None:
    sizes = [MIB << step for step in range(8)]
    line = memory.fit(points(5e12, 1000, sizes, noise=0.01))
    assert line.bytes_per_s == pytest.approx(5e12, rel=0.03)


def test_a_fixed_cost_is_never_negative() -> None:
    falling = [Point(size=1e6, value=1e12, ns=1000), Point(size=4e6, value=8e11, ns=5000)]
    line = memory.fit(falling)
    assert line.t0_ns == 0
    assert line.bytes_per_s == pytest.approx(1e12)


def test_fixed_cost_beyond_caches_is_bounded() -> None:
    """A sum on a GPU: 7.5 us of 38, in a pattern whose shortest pass takes 3.4."""
    sizes = [128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB]
    line = memory._slope_or_plain_rate(points(4.4e12, 7500, sizes), shortest_ns=3400)
    assert line.bytes_per_s == pytest.approx(4.4e12)
    assert line.t0_ns == pytest.approx(7500)


def test_fit_through_noise_is_rejected() -> None:
    """Copies on a CPU at 25 and 30 GB/s: the line through both says 37, after 14 ms of nothing."""
    seen = {1024 * MIB: 24.8e9, 2048 * MIB: 29.5e9}
    noisy = [one for size, rate in seen.items() for one in points(rate, 0, [size])]
    assert memory.fit(noisy).bytes_per_s > 36e9
    found = memory._slope_or_plain_rate(noisy, shortest_ns=2000)
    assert found.t0_ns == 0
    assert found.bytes_per_s == pytest.approx(27.15e9)
    more = [*noisy, *points(27.5e9, 0, [1536 * MIB])]
    found = memory._slope_or_plain_rate(more, shortest_ns=2000)
    assert found.bytes_per_s == pytest.approx(27.5e9)


def test_in_place_bandwidth_is_not_the_roof_of_other_operators() -> None:
    """35 GB/s so, where copies move 21: and it counts from a working set twice the cache on."""
    sizes = [MIB << step for step in range(11)]
    looks = {}
    for pattern, rate in {"read": 20e9, "copy": 21e9, "update": 35e9}.items():
        for size in sizes:
            touched = memory.PATTERNS[pattern] * size
            cached = pattern == "update" and size < 120 * MIB
            ns = touched / (90e9 if cached else rate) * 1e9
            looks[pattern, float(touched)] = [Timing(ns=ns, spread=0.0, samples=9)]
    roofs = {roof.name: roof for roof in memory._roofs(device("cpu"), looks).roofs}
    assert roofs["memory.dram"].value == pytest.approx(21e9)
    assert roofs["memory.dram"].note == "copy"
    assert roofs["memory.dram.update"].value == pytest.approx(35e9)


def test_largest_sets_stand_for_memory_where_none_exceeds_the_cache() -> None:
    """A cache of 60 MiB and sets of up to 32 MiB: those from 8 MiB on, at 20 GB/s."""
    timings = {
        ("read", float(size)): [
            Timing(ns=size / (20e9 if size >= 8 * MIB else 90e9) * 1e9, spread=0.0, samples=9)
        ]
        for size in (MIB << step for step in range(6))
    }
    found = memory._roofs(device("cpu"), timings)
    roofs = {roof.name: roof.value for roof in found.roofs}
    assert roofs["memory.dram"] == pytest.approx(20e9)
    assert "memory.dram: measured with sets of up to" in found.warnings[0]


def test_cache_levels_use_sizes_that_fit() -> None:
    ((cache, capacity, low, high), (dram, none, past, end)) = memory._ranges(device())
    assert (cache, capacity, dram, none) == ("memory.cache", 60 * MIB, "memory.dram", None)
    assert 0 < low < high <= 60 * MIB
    assert past >= 2 * 60 * MIB
    assert end == float("inf")


def test_operands_fit_in_free_memory() -> None:
    sizes = memory.operand_sizes(device(), free_bytes=10**9, quick=False)
    assert max(sizes) * 3 <= 10**9
    assert sizes == sorted(set(sizes))
    assert memory.operand_sizes(device(), free_bytes=1000, quick=False) == []
    assert len(memory.operand_sizes(device(), free_bytes=10**12, quick=True)) < len(sizes)


def test_matmul_sweep_has_squares_and_rectangles() -> None:
    for kind in ("cpu", "cuda"):
        shapes = matmul.shapes(device(kind), quick=False)
        assert any(a == b == c for a, b, c in shapes)
        assert any(not a == b == c for a, b, c in shapes)


@pytest.mark.parametrize(("rate", "side"), [(1e12, 2048), (2.5e8, 256), (1.0, 128)])
def test_slow_dtype_is_measured_briefly(
    rate: float, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[matmul.Shape] = []

    def product(device: Device, dtype: str, shape: matmul.Shape) -> Workload:
        asked.append(shape)
        return lambda: None

    monkeypatch.setattr(matmul, "product", product)
    burst = Roof(name="matmul.bfloat16", value=rate, unit="FLOP/s", source="measured", spread=0.0)
    cpu = device("cpu")
    matmul.sustained(cpu, "bfloat16", stopwatch_for("cpu", 0), burst, seconds=0.01)
    assert asked == [(side, side, side)]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("processor : 0\nmodel name : Xeon  @ 2.50GHz\nmodel name : other\n", "Xeon @ 2.50GHz"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "Neoverse N1"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xfff\n", "aarch64"),
    ],
)
def test_cpu_has_its_model_name(
    told: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(told)
    monkeypatch.setattr(device_module, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "aarch64")
    assert device_module.cpu_name() == name


def test_cpu_without_a_compiler_uses_the_matmul_vector_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector, "_COMPILERS", ())
    cpu = device("cpu")
    chain = vector.measure(cpu, stopwatch_for("cpu", 0), "float32", seconds=0.01)
    assert isinstance(chain, str)
    assert "no C compiler" in chain
    product = Roof(name="matmul.float32", value=9e10, unit="FLOP/s", source="measured")
    (roof,) = measure._vector_roof(cpu, "float32", chain, [product])
    assert (roof.name, roof.value) == ("vector.float32", 9e10)
    # An accelerator's products have units of their own.
    assert measure._vector_roof(device("cuda"), "float32", chain, [product]) == []


def test_a_chain_slower_than_products_is_not_the_roof() -> None:
    product = Roof(name="matmul.float64", value=9e10, unit="FLOP/s", source="measured")
    for rate, expected in ((8e10, 9e10), (10e10, 10e10)):
        chain = Roof(name="vector.float64", value=rate, unit="FLOP/s", source="measured")
        (roof,) = measure._vector_roof(device("cpu"), "float64", chain, [product])
        assert (roof.name, roof.value) == ("vector.float64", expected)


def test_timing_is_a_median_with_interquartile_spread() -> None:
    timing = Timing.of([10.0, 11.0, 12.0, 13.0, 100.0])
    assert timing.ns == 12.0
    assert timing.spread == pytest.approx((13 - 11) / 12)
    assert Timing.of([5.0]).spread == 0


def test_cpu_lists_are_parsed() -> None:
    assert _count_cpus("0-1") == 2
    assert _count_cpus("0,4-6,9") == 5


class SlowHost(CudaStopwatch):
    """A host that needs so many cycles to enqueue its work, on a device that takes 300 us for it.

    What it enqueues too late is measured with the host's own time in it.
    """

    def __init__(self, needs: int) -> None:
        self.needs = needs
        self.given: list[int] = []

    def sync(self) -> None:
        return

    def _between_events(self, work: Workload, head_start: int) -> tuple[float, bool]:
        self.given.append(head_start)
        late = max(0, self.needs - head_start)
        return 300_000.0 + late / 2, not late


def test_slow_host_is_measured_longer() -> None:
    slow = SlowHost(needs=350_000)
    assert slow.time(lambda: None, seconds=0.0).ns == 300_000
    assert slow.given[:3] == [100_000, 200_000, 400_000]
    assert set(slow.given[3:]) == {800_000}


def test_work_that_syncs_is_timed() -> None:
    never = SlowHost(needs=10**9)
    assert never.time(lambda: None, seconds=0.0).ns > 300_000
    assert never.given[-1] == 100_000
