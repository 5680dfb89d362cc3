"""A fused chain of n multiply-adds on every element of an array, for any n.

Built from a few lines of C on a CPU and with Triton on CUDA, so that no compiler shortens the chain
and only the bytes of the array move to and from memory.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from boundby.hardware.probes import vector
from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.model.errors import CANNOT_MEASURE, BoundbyError

# Elements that one iteration of the C loop holds in registers: CHAINS vectors of LANES floats.
_TURN = 256
_UNROLLED = 16  # instructions of the loop's body; the rest of the chain repeats it
_C_SOURCE = """
typedef float vec __attribute__((vector_size(4 * LANES)));
void chain(long steps, long count, const float *in, float *out) {
    vec a, b;
    for (int lane = 0; lane < LANES; lane++) { a[lane] = 0.4999f; b[lane] = 0.5f; }
    for (long start = 0; start < count; start += CHAINS * LANES) {
        vec x[CHAINS];
        const float *from = in + start;
        float *to = out + start;
        for (int i = 0; i < CHAINS; i++) __builtin_memcpy(&x[i], from + i * LANES, sizeof(vec));
        for (long step = 0; step < steps; step++) {
            _Pragma("GCC unroll 16")
            for (int i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
        }
        for (int i = 0; i < CHAINS; i++) __builtin_memcpy(to + i * LANES, &x[i], sizeof(vec));
    }
}
"""


class Chain:
    """An array, and chains of any length over it."""

    def __init__(self, bench: Bench, elements: int) -> None:
        import torch

        self.elements = elements // (_TURN * 64) * (_TURN * 64)
        self._source = torch.rand(self.elements, device=bench.target)
        self._out = torch.empty_like(self._source)
        self._library = None if bench.cuda else _build()
        self._threads = max(1, bench.device.threads)
        self._pool = ThreadPoolExecutor(self._threads)

    def of(self, length: int) -> Workload:
        """The chain of this many multiply-adds, ready to be called."""
        return self._on_cuda(length) if self._library is None else self._on_cpu(length)

    def _on_cuda(self, length: int) -> Workload:
        try:
            from boundby.hardware.probes.triton_chain import launch
        except ImportError:
            raise BoundbyError(
                "a fused chain needs triton, and it is not installed", exit_code=CANNOT_MEASURE
            ) from None
        unrolled = min(length, _UNROLLED)
        rounds = max(1, length // unrolled)
        return lambda: launch(self._source, self._out, rounds=rounds, unrolled=unrolled)

    def _on_cpu(self, length: int) -> Workload:
        parts = self._parts()

        def run(part: tuple[int, Any, Any]) -> None:
            count, source, out = part
            assert self._library is not None
            self._library.chain(ctypes.c_long(length), ctypes.c_long(count), source, out)

        return lambda: list(self._pool.map(run, parts))

    def _parts(self) -> list[tuple[int, Any, Any]]:
        """The array cut into one piece per thread, as addresses."""
        turns = self.elements // _TURN
        cuts = [turns * part // self._threads * _TURN for part in range(self._threads + 1)]
        return [
            (
                end - start,
                ctypes.c_void_p(self._source.data_ptr() + 4 * start),
                ctypes.c_void_p(self._out.data_ptr() + 4 * start),
            )
            for start, end in itertools.pairwise(cuts)
        ]


class Core:
    """One core of a CPU, and chains over its own array."""

    def __init__(self, *, elements: int) -> None:
        import torch

        self.elements = elements // _TURN * _TURN
        self._source = torch.rand(self.elements)
        self._out = torch.empty_like(self._source)
        self._library = _build()

    def of(self, length: int) -> Workload:
        source = ctypes.c_void_p(self._source.data_ptr())
        out = ctypes.c_void_p(self._out.data_ptr())
        steps, count = ctypes.c_long(length), ctypes.c_long(self.elements)
        return lambda: self._library.chain(steps, count, source, out)


@functools.cache
def _build() -> ctypes.CDLL:
    library = vector.build(_C_SOURCE)
    if isinstance(library, str):
        raise BoundbyError(f"a fused chain needs one: {library}", exit_code=CANNOT_MEASURE)
    return library
