"""A trace file's bytes, plain or gzip, in pieces: memory never contains the whole file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from boundby.model.errors import BoundbyError

PIECE_BYTES = 16 << 20  # measured: larger pieces parse no faster and cost memory
_COMPRESSED_BYTES = 1 << 20  # read at a time
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = zlib.MAX_WBITS | 16  # definition: zlib's code for a gzip header
_GZIP_RATIO = 17  # profiler traces shrink 13-18 times


Progress = Callable[[float], object]


def silent(share: float) -> None:
    """Progress without output."""


def part_of(progress: Progress, start: float, end: float) -> Progress:
    """Reports progress of a part of a longer task."""
    return lambda share: progress(start + share * (end - start))


class ByteStream:
    """The file's decompressed bytes in pieces; `broken`: it ended before its proper end."""

    def __init__(self, path: Path, progress: Progress = silent) -> None:
        self.path = path
        self.broken = False
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        # zlib and the disk release the interpreter: the next piece is read while one is parsed.
        with _open(self.path) as file, ThreadPoolExecutor(1) as pool:
            source = self._decompressed(file) if is_gzip(self.path) else _plain(file)
            size = max(self.path.stat().st_size, 1)
            ahead = pool.submit(next, source, b"")
            while piece := ahead.result():
                self._progress(file.tell() / size)
                ahead = pool.submit(next, source, b"")
                yield piece

    def _decompressed(self, file: BinaryIO) -> Iterator[bytes]:
        inflate = zlib.decompressobj(_GZIP_WINDOW)
        pending = b""
        out = bytearray()
        while True:
            pending = pending or file.read(_COMPRESSED_BYTES)
            if not pending:
                self.broken = not inflate.eof
                break
            if inflate.eof:  # members may follow each other
                inflate = zlib.decompressobj(_GZIP_WINDOW)
            try:
                out += inflate.decompress(pending, PIECE_BYTES)
            except zlib.error:
                self.broken = True
                break
            pending = inflate.unconsumed_tail or inflate.unused_data
            if len(out) >= PIECE_BYTES:
                yield bytes(out)
                out.clear()
        if out:
            yield bytes(out)


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise BoundbyError(f"{path}: {error.strerror or 'cannot be read'}") from None


def is_gzip(path: Path) -> bool:
    with _open(path) as file:
        return file.read(2) == _GZIP_MAGIC


def expected_bytes(path: Path) -> int:
    """The approximate size of the file once decompressed."""
    size = path.stat().st_size
    return size * _GZIP_RATIO if is_gzip(path) else size
