"""Whether a measurement had the machine to itself, from figures that the test writes."""

from pathlib import Path

from boundby.hardware.load import LoadMeter


def schedule(folder: Path, *threads: tuple[int, int]) -> None:
    for number, (ran, waited) in enumerate(threads):
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        (place / "schedstat").write_text(f"{ran} {waited} 7\n")


def test_share_counts_all_threads_since_construction(tmp_path: Path) -> None:
    schedule(tmp_path, (1000, 1000), (500, 0))
    meter = LoadMeter(tmp_path)
    schedule(tmp_path, (1600, 1200), (500, 0), (200, 0))
    assert meter.wait_share() == 0.2


def test_system_without_counters_returns_none(tmp_path: Path) -> None:
    assert LoadMeter(tmp_path / "missing").wait_share() is None
