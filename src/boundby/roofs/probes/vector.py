"""Vector FLOP/s: a long chain of multiply-adds on numbers that never leave the registers.

One operator per pass over memory would measure the memory. On CUDA a small Triton kernel does the
chain, on a CPU a few lines of C, built with the system's compiler. A multiply-add counts as two.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from boundby.model import Roof
from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Stopwatch, Timing

_ROUNDS = 16
_UNROLLED = 128
_CPU_ROUNDS = 20_000
# Independent vectors in flight per thread: a multiply-add has a latency of about four cycles and
# two start in each, so that eight would do; more hide what the compiler reorders.
_CPU_CHAINS = 16
_CPU_LANES = 16  # floats in a 512-bit register; narrower machines split it
_COMPILERS = ("cc", "gcc", "clang")
_C_SOURCE = """
typedef float vec __attribute__((vector_size(4 * LANES)));
void chain(long rounds, const float *in, float *out) {
    vec x[CHAINS], a, b;
    for (int lane = 0; lane < LANES; lane++) { a[lane] = in[lane]; b[lane] = 1.0f - in[lane]; }
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


def measure(device: Device, stopwatch: Stopwatch, *, seconds: float) -> Roof | str:
    """The roof, or one line on why it could not be measured."""
    if device.kind == "cpu":
        return _measure_cpu(device, seconds)
    return _measure_cuda(device, stopwatch, seconds)


def _roof(value: float, timing: Timing) -> Roof:
    return Roof(
        name="vector.float32",
        value=value,
        unit="FLOP/s",
        source="measured",
        spread=timing.spread,
    )


def _measure_cuda(device: Device, stopwatch: Stopwatch, seconds: float) -> Roof | str:
    import torch

    try:
        from boundby.roofs.probes.triton_chain import launch
    except ImportError:
        return "vector FLOP/s was not measured: triton is not installed"
    numbers = torch.rand(device.processors * 64 * 2048, device=device.target)
    out = torch.empty_like(numbers)
    timing = stopwatch.time(
        lambda: launch(numbers, out, rounds=_ROUNDS, unrolled=_UNROLLED), seconds=seconds
    )
    flops = 2.0 * numbers.numel() * _ROUNDS * _UNROLLED
    return _roof(flops / timing.ns * 1e9, timing)


def _measure_cpu(device: Device, seconds: float) -> Roof | str:
    library = build(_C_SOURCE)
    if isinstance(library, str):
        return f"vector FLOP/s was not measured: {library}"
    return _run_chains(library, device.threads, seconds)


def build(code: str) -> ctypes.CDLL | str:
    """A few lines of C over vectors as a library, or one line on why there is none.

    The code may use LANES, the floats of a vector, and CHAINS, the vectors to keep in flight.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return "no C compiler (cc, gcc or clang) is installed"
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        return _build(compiler, code, Path(folder)) or f"{compiler} could not build the probe"


def _build(compiler: str, code: str, folder: Path) -> ctypes.CDLL | None:
    source, built = folder / "chain.c", folder / "chain.so"
    source.write_text(code)
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
    command += ["-mprefer-vector-width=512"] if os.uname().machine == "x86_64" else []
    command += [f"-DCHAINS={_CPU_CHAINS}", f"-DLANES={_CPU_LANES}", "-o", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, check=False)
    return ctypes.CDLL(str(built)) if done.returncode == 0 else None


def _run_chains(library: ctypes.CDLL, threads: int, seconds: float) -> Roof:
    """One chain per thread, started together; ctypes lets go of the interpreter meanwhile."""
    import random
    import time
    from concurrent.futures import ThreadPoolExecutor

    numbers = (ctypes.c_float * _CPU_LANES)(*(random.uniform(0.4, 0.6) for _ in range(_CPU_LANES)))
    outs = [(ctypes.c_float * (_CPU_LANES * _CPU_CHAINS))() for _ in range(threads)]
    rounds = ctypes.c_long(_CPU_ROUNDS * 50)
    flops = 2.0 * threads * _CPU_LANES * _CPU_CHAINS * rounds.value
    samples: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        deadline = time.perf_counter() + seconds
        while len(samples) < 5 or time.perf_counter() < deadline:
            began = time.perf_counter_ns()
            list(pool.map(lambda out: library.chain(rounds, numbers, out), outs))
            samples.append(float(time.perf_counter_ns() - began))
    timing = Timing.of(samples)
    return _roof(flops / timing.ns * 1e9, timing)
