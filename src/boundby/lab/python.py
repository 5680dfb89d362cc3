"""One addition: where its time is spent, and what the device could have computed in that time.

The claim
    One addition in Python takes tens of nanoseconds, one in torch microseconds; nearly all of it is
    interpreter, dispatch and launch. In the time of a single Python addition an A100 could have
    done 9.75 million FLOPs.

The law
    Each call has a fixed cost, whatever it computes: the interpreter finds and calls the method,
    the framework determines dtype, device and kernel, the runtime launches it. Multiplied by the
    device's fastest roof, each of these is arithmetic that was not done.

The experiment
    Two Python floats added in a loop; two small tensors added in a loop; the parts of the second
    separately: a Python call that does nothing, a bare kernel launch, and the kernel (from a
    replayed graph on CUDA, from the time per additional element on a CPU). The remainder is
    dispatch.
"""

from __future__ import annotations

import operator

from boundby.hardware.stopwatch import Timing, time_host
from boundby.lab.bench import Bench, spread
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import overhead_of
from boundby.model import Machine, units
from boundby.model.host_speed import addition_ns
from boundby.model.lab import Axis, Bar, Bars, Interval

_SMALL = 64  # elements
_MORE = 8192  # elements: still on one thread, in the core's own cache
_ADDITIONS, _LOOPS = 300_000, 9  # per sample: several milliseconds; samples for a median
_CALLS = 300  # per sample
_ROUNDS = 15  # the median of them counts


def predict(machine: Machine, _: Probe) -> Predictions:
    addition, eager = overhead_of(machine, "python_add_ns"), overhead_of(machine, "eager_op_ns")
    predictions = {
        "python": around(addition, "an addition in Python", "ns", rests_on=("python_add_ns",)),
        "torch": around(eager, "an addition in torch", "ns", rests_on=("eager_op_ns",)),
        "ratio": around(
            eager / addition,
            "an addition in torch over one in Python",
            "x",
            within=1.5,
            rests_on=("python_add_ns", "eager_op_ns"),
        ),
        "overhead": between(
            0.8, 0.95, 1.0, "share of an addition in torch that is not its kernel", "share"
        ),
    }
    if machine.overheads.launch_ns:
        predictions["launch"] = around(
            machine.overheads.launch_ns, "a bare kernel launch", "ns", rests_on=("launch_ns",)
        )
    if machine.flops_per_python_add:
        predictions["missed"] = around(
            machine.flops_per_python_add,
            "FLOPs of the device in the time of an addition in Python",
            rests_on=("python_add_ns",),
        )
    return predictions


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    a, b = (torch.rand(_SMALL, device=bench.target) for _ in range(2))
    addition = spread(Timing.of([addition_ns(_ADDITIONS) for _ in range(_LOOPS)]))
    eager = _host(bench, lambda: a + b)
    interpreter = _host(bench, lambda: operator.is_(a, b))
    kernel = _kernel(bench)
    parts = {"interpreter": interpreter.value, "kernel": kernel.value}
    measured = Measured(
        found={"python": addition, "torch": eager, "ratio": eager.over(addition)},
    )
    if bench.cuda:
        launch = _host(bench, lambda: torch.cuda._sleep(1))
        measured.found["launch"] = launch
        parts["launch"] = launch.value
    on_host = eager.value + (kernel.value if bench.cuda else 0.0)
    share = kernel.value / on_host
    measured.found["overhead"] = Interval(low=1 - share, value=1 - share, high=1 - share)
    parts["dispatch"] = max(0.0, on_host - sum(parts.values()))
    fastest = max(
        r.value for r in bench.machine.roofs if r.unit == "FLOP/s" and "float8" not in r.name
    )
    measured.found["missed"] = addition.times(fastest / 1e9)
    for name, value in parts.items():
        measured.add(f"part.{name}", f"an addition in torch: {name}", "ns", value)
    measured.add(
        "missed_torch",
        "FLOPs of the device in the time of an addition in torch",
        "",
        eager.times(fastest / 1e9),
    )
    missed = units.count(measured.found["missed"].value)
    measured.summary = (
        f"in the time of one Python addition this device could do {missed} FLOPs; of an addition "
        f"in torch {units.share(1 - share)} is not its kernel"
    )
    order = ("interpreter", "dispatch", "launch", "kernel")
    bars = [Bar(name=name, value=parts[name]) for name in order if name in parts]
    predicted = predict(bench.machine, Probe())["torch"]
    bars.append(Bar(name="total", value=eager.value, low=predicted.low, high=predicted.high))
    bars.append(Bar(name="addition in Python", value=addition.value))
    axis = Axis(name="time", unit="ns", log=False)
    measured.plots.append(Bars(title="One addition in torch", axis=axis, bars=bars))
    return measured


def _host(bench: Bench, work) -> Interval:  # type: ignore[no-untyped-def]
    bench.pause()
    return spread(time_host(work, calls=_CALLS, rounds=_ROUNDS, settle=bench.stopwatch.sync))


def _kernel(bench: Bench) -> Interval:
    """The time of the addition's kernel alone."""
    import torch

    if bench.cuda:
        a = torch.rand(_SMALL, device=bench.target)
        return bench.time(lambda: a.add_(1.0), seconds=0.1)
    few, many = (torch.rand(count) for count in (_SMALL, _MORE))
    short, long = _host(bench, lambda: few + few), _host(bench, lambda: many + many)
    each = max(0.0, long.value - short.value) / (_MORE - _SMALL)
    return Interval(low=each * _SMALL, value=each * _SMALL, high=each * _SMALL)


EXPERIMENT = Experiment(
    name="python", document=__doc__ or "", predict=predict, measure=measure, seconds=3
)
