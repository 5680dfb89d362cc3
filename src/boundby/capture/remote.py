"""Local copies of remote files: s3://, gs://, https:// and others that fsspec opens."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from boundby.model.errors import BoundbyError

_PIECE_BYTES = 1 << 20  # read at a time


def is_remote(place: str) -> bool:
    """Whether a place is a URL instead of a path."""
    return "://" in place


def local_copy(url: str) -> Path:
    """The file behind a URL, in a folder that is removed when the process ends."""
    fsspec = _fsspec(url)
    folder = Path(tempfile.mkdtemp(prefix="boundby-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2] or "trace"
    path = folder / name
    try:
        with fsspec.open(url, "rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE_BYTES)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        words = str(error).strip() or type(error).__name__
        raise BoundbyError(f"cannot read {url}: {words.splitlines()[0]}") from None
    return path


def _fsspec(url: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        text = f'{url}: URLs need fsspec: pip install "boundby[fsspec]"'
        raise BoundbyError(text) from None
    return fsspec
