from pathlib import Path

import msgspec
import pytest

from boundby.hardware import cache
from boundby.hardware.device import Cache, Device
from boundby.model.errors import BoundbyError
from tests.machines import round_machine

DEVICE = Device(
    name="Round 1",
    kind="cuda",
    driver="1.0",
    torch="2.0",
    threads=8,
    memory_bytes=10**9,
    caches=(Cache(name="memory.cache", capacity=10**7),),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "machines")


def test_saved_machine_is_read_back() -> None:
    assert cache.load(DEVICE) is None
    cache.save(round_machine(), DEVICE)
    assert cache.load(DEVICE) == round_machine()


def test_key_depends_on_device_driver_torch_and_threads() -> None:
    changes: list[dict[str, str | int]] = [
        {"name": "Round 2"},
        {"driver": "1.1"},
        {"torch": "2.1"},
        {"threads": 4},
    ]
    paths = {cache.path_for(msgspec.structs.replace(DEVICE, **change)) for change in changes}
    assert len(paths | {cache.path_for(DEVICE)}) == 5


def test_quick_measurement_does_not_replace_a_full_one() -> None:
    quick = msgspec.structs.replace(round_machine(), quick=True, device="quick")
    cache.save(quick, DEVICE)
    assert cache.load(DEVICE) == quick
    cache.save(round_machine(), DEVICE)
    cache.save(quick, DEVICE)
    assert cache.load(DEVICE) == round_machine()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a saved machine"),
        (b'{"schema": 1, "device": "x"', "is not a saved machine"),
        (b'{"schema": 1}', "is not a saved machine"),
        (b'{"schema": 0, "roofs": "old"}', "another version of boundby (schema 0"),
        (b"\xff\xfe", "is not a saved machine"),
    ],
)
def test_broken_or_older_file_is_a_one_line_error(content: bytes, complaint: str) -> None:
    path = cache.path_for(DEVICE)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(BoundbyError) as caught:
        cache.load(DEVICE)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_failed_write_keeps_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.save(round_machine(), DEVICE)

    def interrupted(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.save(msgspec.structs.replace(round_machine(), device="new"), DEVICE)
    assert cache.load(DEVICE) == round_machine()
    assert [path.name for path in cache.folder().iterdir()] == [cache.path_for(DEVICE).name]


def test_roofs_are_found_by_the_name_of_the_device() -> None:
    """Roofs of a trace's device that no datasheet lists and that were measured here."""
    assert cache.find("round 1") is None
    cache.save(round_machine(), DEVICE)
    assert cache.find(round_machine().device) == round_machine()
    assert cache.find("another") is None
