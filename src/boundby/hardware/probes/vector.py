"""Vector FLOP/s: a long chain of multiply-adds on numbers that stay in registers.

One operator per pass over memory would measure the memory. On CUDA a small Triton kernel runs the
chain, on a CPU a few lines of C, built with the system's compiler. A multiply-add counts as two.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Stopwatch, Timing
from boundby.model import Roof

_ROUNDS = 16  # of the unrolled loop
_UNROLLED = 128  # multiply-adds a round
_CPU_ROUNDS = 20_000  # a sample
# Independent vectors in flight per thread: a multiply-add has a latency of about four cycles and
# two start in each, so eight would suffice; more tolerate reordering by the compiler.
_CPU_CHAINS = 16
_CPU_BYTES = 64  # of a 512-bit register; narrower machines split it
_COMPILERS = ("cc", "gcc", "clang")
_C_SOURCE = """
typedef REAL vec __attribute__((vector_size(sizeof(REAL) * LANES)));
void chain(long rounds, const REAL *in, REAL *out) {
    vec x[CHAINS], a, b;
    for (int lane = 0; lane < LANES; lane++) { a[lane] = in[lane]; b[lane] = 1 - in[lane]; }
    for (int i = 0; i < CHAINS; i++)
        for (int lane = 0; lane < LANES; lane++) x[i][lane] = in[(i + lane) % LANES];
    for (long round = 0; round < rounds; round++) {
        _Pragma("GCC unroll 16")
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
    }
    for (int i = 0; i < CHAINS; i++)
        for (int lane = 0; lane < LANES; lane++) out[i * LANES + lane] = x[i][lane];
}
"""


# dtype -> its name in C, and as ctypes has it.
_REALS: dict[str, tuple[str, type[ctypes.c_float] | type[ctypes.c_double]]] = {
    "float32": ("float", ctypes.c_float),
    "float64": ("double", ctypes.c_double),
}
DTYPES = tuple(_REALS)


def measure(device: Device, stopwatch: Stopwatch, dtype: str, *, seconds: float) -> Roof | str:
    """The roof of one of `DTYPES`, or one line on why it could not be measured."""
    if device.kind == "cpu":
        return _measure_cpu(device, dtype, seconds)
    return _measure_cuda(device, stopwatch, dtype, seconds)


def _roof(dtype: str, value: float, timing: Timing) -> Roof:
    return Roof(
        name=f"vector.{dtype}",
        value=value,
        unit="FLOP/s",
        source="measured",
        spread=timing.spread,
    )


def _measure_cuda(device: Device, stopwatch: Stopwatch, dtype: str, seconds: float) -> Roof | str:
    import torch

    try:
        from boundby.hardware.probes.triton_chain import launch
    except ImportError:
        return "vector FLOP/s was not measured: triton is not installed"
    count = device.processors * 64 * 2048
    numbers = torch.rand(count, dtype=getattr(torch, dtype), device=device.target)
    out = torch.empty_like(numbers)
    timing = stopwatch.time(
        lambda: launch(numbers, out, rounds=_ROUNDS, unrolled=_UNROLLED), seconds=seconds
    )
    flops = 2.0 * numbers.numel() * _ROUNDS * _UNROLLED
    return _roof(dtype, flops / timing.ns * 1e9, timing)


def _measure_cpu(device: Device, dtype: str, seconds: float) -> Roof | str:
    library = build(_C_SOURCE, dtype)
    if isinstance(library, str):
        return f"vector FLOP/s was not measured: {library}"
    return _run_chains(library, dtype, device.threads, seconds)


def build(code: str, dtype: str = "float32") -> ctypes.CDLL | str:
    """A few lines of C over vectors as a library, or one line on why it cannot be built.

    The code may use REAL, the type of a number, LANES, how many of them a vector has, and CHAINS,
    the number of vectors to keep in flight.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return "no C compiler (cc, gcc or clang) is installed"
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        return _build(compiler, code, dtype, Path(folder)) or (
            f"{compiler} could not build the probe"
        )


def _build(compiler: str, code: str, dtype: str, folder: Path) -> ctypes.CDLL | None:
    source, built = folder / "chain.c", folder / "chain.so"
    source.write_text(code)
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
    command += ["-mprefer-vector-width=512"] if os.uname().machine == "x86_64" else []
    name, real = _REALS[dtype]
    lanes = _CPU_BYTES // ctypes.sizeof(real)
    command += [f"-DREAL={name}", f"-DCHAINS={_CPU_CHAINS}", f"-DLANES={lanes}"]
    command += ["-o", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, check=False)
    return ctypes.CDLL(str(built)) if done.returncode == 0 else None


def _run_chains(library: ctypes.CDLL, dtype: str, threads: int, seconds: float) -> Roof:
    """One chain per thread, started together; ctypes releases the interpreter lock meanwhile."""
    import random
    import time
    from concurrent.futures import ThreadPoolExecutor

    _, real = _REALS[dtype]
    lanes = _CPU_BYTES // ctypes.sizeof(real)
    numbers = (real * lanes)(*(random.uniform(0.4, 0.6) for _ in range(lanes)))
    outs = [(real * (lanes * _CPU_CHAINS))() for _ in range(threads)]
    rounds = ctypes.c_long(_CPU_ROUNDS * 50)
    flops = 2.0 * threads * lanes * _CPU_CHAINS * rounds.value
    samples: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        deadline = time.perf_counter() + seconds
        while len(samples) < 5 or time.perf_counter() < deadline:
            began = time.perf_counter_ns()
            list(pool.map(lambda out: library.chain(rounds, numbers, out), outs))
            samples.append(float(time.perf_counter_ns() - began))
    timing = Timing.of(samples)
    return _roof(dtype, flops / timing.ns * 1e9, timing)
