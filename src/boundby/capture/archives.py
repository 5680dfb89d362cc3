"""Traces inside zip archives, as browsers and CI systems pack them."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation

if TYPE_CHECKING:
    from boundby.capture.sources import Source

_MAGIC = b"PK\x03\x04"
# Of damaged archives, besides `BadZipFile`; OSError: of a member before the file's beginning.
_BROKEN = (
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


class ZipSource:
    """Archives with one or several traces of other formats; other files in them are ignored."""

    name = "zipped traces"

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def recognises(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except OSError:
            return False

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        import tempfile  # with `zipfile` 2% of the time of a small trace
        import zipfile

        found: list[Observation] = []
        try:
            with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
                for member in archive.infolist():
                    if member.is_dir() or Path(member.filename).name.startswith((".", "._")):
                        continue
                    unpacked = Path(folder, Path(member.filename).name or "trace")
                    with archive.open(member) as source, unpacked.open("wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                    for observation in self._observe_member(unpacked, index, wall_ns):
                        name = f"{path}/{member.filename}"
                        found.append(msgspec.structs.replace(observation, target=name))
                    unpacked.unlink()
        except (zipfile.BadZipFile, *_BROKEN) as error:
            raise BoundbyError(f"{path}: a damaged archive: {error}") from None
        if not found:
            raise BoundbyError(f"{path}: no traces in this archive")
        return found

    def _observe_member(
        self, path: Path, index: int | None, wall_ns: float | None
    ) -> list[Observation]:
        source = next((one for one in self._sources if one.recognises(path)), None)
        return [] if source is None else source.observe(path, index=index, wall_ns=wall_ns)
