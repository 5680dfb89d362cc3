"""The period of a repeated sequence, such as the launches of a training loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_LONGEST = 1 << 18  # longer sequences are judged by their beginning
_SHORTEST_STEP = 4  # launches
_ALIKE = 0.9  # assumed: share of equal events of two steps
_AS_GOOD = 0.005  # a multiple of the period matches as well as the period
_COVERED = 0.97  # share of the trace that steps cover; assumed
_CANDIDATES = 256  # time limit


def find_period(tokens: npt.NDArray[np.integer[Any]]) -> tuple[int, int, int] | None:
    """First index, length and count of the repeats that make up nearly all of the sequence."""
    head = tokens[:_LONGEST]
    lags = _promising_lags(head)
    scored = [(float(np.mean(head[lag:] == head[:-lag])), lag) for lag in lags]
    if not scored:
        return None
    best = max(score for score, _ in scored)
    if best < _ALIKE:
        return None
    period = min(lag for score, lag in scored if score >= best - _AS_GOOD)
    first, last = _repeating_stretch(tokens, period)
    repeats = (last - first) // period
    if repeats < 2 or last - first < _COVERED * len(tokens):
        return None
    return first, period, repeats


def _promising_lags(tokens: npt.NDArray[np.integer[Any]]) -> list[int]:
    """Lags at which the sequence resembles itself, from the autocorrelation of random signs."""
    count = len(tokens)
    longest = count // 2
    if longest < _SHORTEST_STEP:
        return []
    size = 1 << (2 * count - 1).bit_length()
    generator = np.random.default_rng(0)
    total = np.zeros(longest + 1)
    for _ in range(4):
        signs = generator.choice([-1.0, 1.0], int(tokens.max()) + 1)[tokens]
        spectrum = np.fft.rfft(signs, size)
        total += np.fft.irfft(spectrum * spectrum.conj(), size)[: longest + 1]
    alike = total / (4 * (count - np.arange(longest + 1)))
    alike[:_SHORTEST_STEP] = -1
    best = np.argsort(-alike, kind="stable")[:_CANDIDATES]
    return [int(lag) for lag in best if alike[lag] > _ALIKE / 2]


def _repeating_stretch(tokens: npt.NDArray[np.integer[Any]], period: int) -> tuple[int, int]:
    """Start and end of the range from the first to past the last token that has an equal one a
    period away."""
    twins = np.flatnonzero(tokens[period:] == tokens[:-period])
    return (int(twins[0]), int(twins[-1]) + period + 1) if len(twins) else (0, 0)
