"""How busy the machine was during a measurement."""

from __future__ import annotations

from pathlib import Path

_THREADS = Path("/proc/self/task")


class LoadMeter:
    """Measures the share of this process' runnable time without a core, since its construction."""

    def __init__(self, threads: Path = _THREADS) -> None:
        self._threads = threads
        self._ran, self._waited = self._read()

    def wait_share(self) -> float | None:
        """The share so far; None if the operating system does not count this."""
        ran, waited = self._read()
        ran, waited = ran - self._ran, waited - self._waited
        return waited / (ran + waited) if ran > 0 and waited >= 0 else None

    def _read(self) -> tuple[float, float]:
        ran = waited = 0.0
        try:
            files = [place / "schedstat" for place in self._threads.iterdir()]
        except OSError:
            return 0.0, 0.0
        for place in files:
            try:
                on_core, ready, *_ = place.read_text().split()
            except (OSError, ValueError):  # it has ended, or the operating system does not tell
                continue
            ran += float(on_core)
            waited += float(ready)
        return ran, waited
