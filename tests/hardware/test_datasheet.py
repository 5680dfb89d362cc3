import pytest

from boundby.hardware import datasheet

GB = 10**9


@pytest.mark.parametrize(
    ("reported", "chip"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200 SXM"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("Tesla V100-SXM2-32GB", "V100 SXM"),
        ("NVIDIA A100-PG509-200", "A100 SXM 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_driver_names_are_recognised(reported: str, chip: str) -> None:
    found = datasheet.find_chip(reported)
    assert found is not None
    assert found.name.startswith(chip)


@pytest.mark.parametrize(
    "reported",
    ["Intel(R) Xeon(R) Processor", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA L400", ""],
)
def test_unlisted_names_are_not_recognised(reported: str) -> None:
    assert datasheet.find_chip(reported) is None


def test_partitioned_gpu_is_not_the_full_gpu() -> None:
    assert datasheet.find_chip("NVIDIA H200", 141 * GB) is not None
    assert datasheet.find_chip("NVIDIA H200", 18 * GB) is None


def test_every_figure_names_its_source_and_is_in_range() -> None:
    for chip in datasheet.chips():
        assert chip.figures, chip.name
        for name, figure in chip.figures.items():
            assert datasheet.source(figure.source), (chip.name, name)
            low, high = (1e9, 2e13) if name.startswith(("mem", "host", "net")) else (1e11, 3e16)
            assert low <= figure.value <= high, (chip.name, name)


def test_figures_are_dense() -> None:
    """The printed sparse figures, twice these, are what peers' tables get wrong."""
    h200 = datasheet.find_chip("NVIDIA H200")
    l4 = datasheet.find_chip("NVIDIA L4")
    assert h200 is not None
    assert l4 is not None
    assert h200.figures["matmul.bfloat16"].value == pytest.approx(989e12, rel=0.01)
    assert h200.figures["matmul.float8"].value == pytest.approx(1979e12, rel=0.01)
    assert l4.figures["memory.dram"].value == pytest.approx(300e9)


def test_chips_of_one_name_are_distinguished_by_memory() -> None:
    mi250 = datasheet.find_chip("AMD Radeon Graphics", 68_702_699_520)
    assert mi250 is not None and mi250.name.startswith("MI250")
    assert datasheet.find_chip("AMD Radeon Graphics", 8 << 30) is None
    assert datasheet.find_chip("AMD Radeon Graphics") is None
