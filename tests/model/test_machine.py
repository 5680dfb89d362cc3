import msgspec
import numpy as np
import pytest

from boundby.model import Cost, Machine, MemoryLevel, Overheads, Point, Roof
from tests.machines import roof, round_machine


def test_roofline_minimum_is_the_larger_of_compute_and_memory_time() -> None:
    machine = round_machine()
    # 2 * 4096^3 = 137.4 GFLOP at 1 PFLOP/s = 137 us; 100 MB of traffic at 5 TB/s = 20 us.
    product = Cost(flops={"matmul.bfloat16": 2 * 4096**3}, bytes_read=67e6, bytes_written=33e6)
    assert machine.floor(product) == pytest.approx(137_439, rel=1e-4)
    assert machine.bound(product) == "compute"
    # 1 GB read and written at 5 TB/s = 400 us; 0.25 G operations at 50 TFLOP/s = 5 us.
    gelu = Cost(flops={"vector.float32": 2.5e8}, bytes_read=1e9, bytes_written=1e9)
    assert machine.floor(gelu) == pytest.approx(400_000)
    assert machine.bound(gelu) == "memory"


def test_data_over_four_times_the_cache_uses_the_memory_roof() -> None:
    machine = round_machine()
    within, past = Cost(bytes_read=40e6), Cost(bytes_read=41e6)
    assert machine.floor(within) == pytest.approx(40e6 / 1e13 * 1e9)
    assert machine.floor(past) == pytest.approx(41e6 / 5e12 * 1e9)


def test_inner_cache_rate_applies_only_to_data_that_fits() -> None:
    """2 MB at 40 TB/s, 10 MB at 10 TB/s, and the memory at 5 TB/s."""
    one = round_machine()
    machine = msgspec.structs.replace(
        one,
        roofs=[Roof(name="memory.l2", value=4e13, unit="B/s", source="measured"), *one.roofs],
        levels=[MemoryLevel(roof="memory.l2", capacity=2_000_000), *one.levels],
    )
    assert machine.floor(Cost(bytes_read=2e6)) == pytest.approx(50)
    # 2 MB of 8 may lie there: 50 ns, and 600 for the other six.
    assert machine.floor(Cost(bytes_read=8e6)) == pytest.approx(650)
    assert machine.floor(Cost(bytes_read=42e6)) == pytest.approx(50 + 8_000)
    names = [roof.name for size in (1e6, 8e6, 42e6) if (roof := machine.memory_roof(size))]
    assert names == ["memory.l2", "memory.cache", "memory.dram"]


def test_in_place_updates_have_their_own_roof() -> None:
    """30 GB past all caches at 5 TB/s, or at 7.5 where it is updated."""
    machine = round_machine()
    update = roof("memory.dram.update", 7.5e12, "B/s")
    machine = msgspec.structs.replace(machine, roofs=[*machine.roofs, update])
    for in_place, ms in ((False, 6), (True, 4)):
        cost = Cost(bytes_read=15e9, bytes_written=15e9, in_place=in_place)
        assert machine.memory_ns(cost) == pytest.approx(ms * 1e6)
    assert round_machine().memory_ns(cost) == pytest.approx(6e6)


def test_minimum_below_the_shortest_kernel_is_small() -> None:
    assert round_machine().bound(Cost(bytes_read=1e6)) == "small"  # 0.1 us of 1 us


def test_unit_without_a_roof_is_unknown() -> None:
    cost = Cost(flops={"matmul.float8": 1e12}, bytes_read=1e9)
    assert round_machine().floor(cost) is None
    assert round_machine().bound(cost) == "unknown"


def test_pointwise_operators_without_a_vector_roof_use_the_memory_roof() -> None:
    # Two arrays of 1e8 float64 read and one written: 2.4 GB at 5 TB/s = 480 us.
    add = Cost(flops={"vector.float64": 1e8}, bytes_read=1.6e9, bytes_written=0.8e9)
    machine = round_machine()
    assert machine.rate("vector.float64") is None
    assert machine.floor(add) == pytest.approx(480_000)
    assert machine.bound(add) == "memory"


def test_derived_figures_match_hand_arithmetic() -> None:
    machine = round_machine()
    assert machine.ridge("matmul.bfloat16") == pytest.approx(200)  # 1e15 / 5e12
    assert machine.critical_batch == pytest.approx(200)
    assert machine.pointwise_ops == pytest.approx(80)  # 5e13 / 5e12 * 8 bytes
    assert machine.flops_per_python_add == pytest.approx(25e6)  # 1e15 * 25 ns


def test_a100_figures_match_the_datasheet() -> None:
    """19.5 TFLOP/s over 1.5 TB/s: about 100 operations; 312 TFLOP/s over 32 M additions/s."""
    machine = round_machine()
    fields = {"vector.float32": 19.5e12, "memory.dram": 1.5e12, "matmul.bfloat16": 312e12}
    roofs = [
        msgspec.structs.replace(roof, value=fields.get(roof.name, roof.value))
        for roof in machine.roofs
    ]
    overheads = msgspec.structs.replace(machine.overheads, python_add_ns=1e9 / 32e6)
    a100 = msgspec.structs.replace(machine, roofs=roofs, overheads=overheads)
    assert a100.pointwise_ops == pytest.approx(104)
    assert a100.flops_per_python_add == pytest.approx(9.75e6)


def test_costs_add_per_unit() -> None:
    total = Cost(flops={"matmul.bfloat16": 1}, bytes_read=2) + Cost(
        flops={"matmul.bfloat16": 3, "vector.float32": 5}, bytes_written=7, upper_bound=True
    )
    assert total == Cost(
        flops={"matmul.bfloat16": 4, "vector.float32": 5},
        bytes_read=2,
        bytes_written=7,
        upper_bound=True,
    )


def test_summed_cost_is_in_place_if_all_writes_are() -> None:
    update, copy = (Cost(bytes_read=8, bytes_written=8, in_place=one) for one in (True, False))
    reading = Cost(bytes_read=8)
    assert (update + reading).in_place and (reading + update).in_place
    assert not (update + copy).in_place


def test_machine_round_trips_through_json_and_ignores_unknown_keys() -> None:
    machine = round_machine()
    raw = msgspec.json.decode(msgspec.json.encode(machine))
    raw["from_the_future"] = {"x": 1}
    assert msgspec.convert(raw, Machine) == machine


def test_time_grows_with_size_between_distant_points() -> None:
    """A product of 0.27 GFLOP in 4 ms and one of eight times that in 32: 0.54 in 8, not in 13."""
    times = [(2.0**28, 4e6), (2.0**31, 34e6), (2.0**31, 32e6)]
    curve = [Point(size=size, ns=ns, value=size / ns * 1e9) for size, ns in times]
    machine = msgspec.structs.replace(round_machine(), curves={"matmul.float32": curve})
    for doublings, ms in enumerate([4, 8, 16, 32]):
        assert machine.product_ns("matmul.float32", 2.0 ** (28 + doublings)) == pytest.approx(
            ms * 1e6
        )


def test_gap_is_that_after_kernels_of_similar_length() -> None:
    overheads = Overheads(
        kernel_gap_ns=1000, long_kernel_gap_ns=800, graph_gap_ns=100, long_graph_gap_ns=-300
    )
    kernels_ns = np.array([2_000, 5_000, 7_000, 50_000])
    assert overheads.gap_ns(kernels_ns) == pytest.approx(950)
    assert overheads.gap_ns(kernels_ns, graphed=True) == pytest.approx(0)
    assert overheads.gap_ns(kernels_ns[3:], graphed=True) == pytest.approx(-300)


def test_single_known_gap_is_used_everywhere() -> None:
    kernels_ns = np.array([2_000, 50_000])
    assert Overheads(kernel_gap_ns=1000).gap_ns(kernels_ns) == 1000
    assert Overheads(kernel_gap_ns=1000).gap_ns(kernels_ns, graphed=True) is None
    assert Overheads(kernel_gap_ns=1000, long_kernel_gap_ns=800).gap_ns(kernels_ns[:0]) == 1000
