"""The behaviour of hosts and their profilers that was not measured."""

from __future__ import annotations

from boundby.model.assumptions.assumption import Assumption

OPERATOR_NS = Assumption(
    value=10_000.0,
    low=3_000.0,
    high=30_000.0,
    unit="ns",
    meaning="Host time to issue one eager operator where the machine was not measured.",
    source="Seen on hosts of data-center GPUs.",
)
LAUNCH_NS = Assumption(
    value=25_000.0,
    low=8_500.0,
    high=30_000.0,
    unit="ns",
    meaning=(
        "Host time for one launch in a whole step, compiled or eager. The low end is one eager "
        "addition in a loop."
    ),
    source="Measured on one GPU host: 21 to 30 us a launch in whole steps.",
)
NODE_NS = Assumption(
    value=3_000.0,
    low=1_000.0,
    high=10_000.0,
    unit="ns",
    meaning=(
        "Host time to make and free the autograd node of one operator where the machine was not "
        "measured."
    ),
    source="Assumed.",
)
COMPILED_CALL_NS = Assumption(
    value=30_000.0,
    low=10_000.0,
    high=100_000.0,
    unit="ns",
    meaning="Host time to enter a compiled region where the machine was not measured.",
    source="Assumed.",
)
COMPILED_LAUNCH_FACTOR = Assumption(
    value=1.3,
    low=1.0,
    high=1.6,
    unit="times",
    meaning=(
        "By how much the host's time per launch of a compiled step may differ from the estimate."
    ),
    source="Assumed.",
)
RECORDING_SHARE = Assumption(
    value=0.7,
    low=0.3,
    high=1.1,
    unit="share",
    meaning="Share of the extra host time of a differentiated operator that is not its backward.",
    source="Measured between 0.6 and 1.1 in models without large tensors.",
)
FUSED_LAYER_PYTHON = Assumption(
    value=0.7,
    low=0.5,
    high=1.0,
    unit="share",
    meaning="Time outside of operators left where a transformer layer's inference is one operator.",
    source="Measured 0.75 of all time in the smallest layer; the range is assumed.",
)
PROFILED_OPERATOR_NS = Assumption(
    value=3_300.0,
    low=1_000.0,
    high=10_000.0,
    unit="ns",
    meaning=(
        "Profiler overhead per operator with shapes and stacks, where the run did not measure it "
        "(traces)."
    ),
    source="Measured with torch 2.11 on one host: four profiled models beside their clean steps.",
)
PROFILED_PYTHON_NS = Assumption(
    value=2_200.0,
    low=500.0,
    high=5_000.0,
    unit="ns",
    meaning=(
        "Profiler overhead per Python call with stacks, where the run did not measure it (traces)."
    ),
    source="Measured with torch 2.11 on one host: four profiled models beside their clean steps.",
)
PROFILED_FUNCTION_NS = Assumption(
    value=400.0,
    low=300.0,
    high=500.0,
    unit="ns",
    meaning="Profiler overhead per Python function where a live run could not measure it.",
    source="Measured with torch 2.13 and Python 3.11.",
)
PROFILED_BUILTIN_NS = Assumption(
    value=180.0,
    low=170.0,
    high=190.0,
    unit="ns",
    meaning="Profiler overhead per C function where a live run could not measure it.",
    source="Measured with torch 2.13 and Python 3.11.",
)
PROFILED_OPERATOR_FUNCTIONS = Assumption(
    value=2.6,
    low=2.0,
    high=3.5,
    unit="functions",
    meaning="Profiler overhead of an operator, in Python functions.",
    source="Measured with torch 2.13 and Python 3.11: 1.05 us an operator.",
)
PROFILER_OVERHEAD_FACTOR = Assumption(
    value=4.0,
    low=1.4,
    high=4.3,
    unit="times",
    meaning=(
        "Most that profiler events cost in a step relative to alone, with cold caches and many "
        "arguments."
    ),
    source="Range seen in steps that contain little else.",
)
PROFILER_FUNCTION_SHARE = Assumption(
    value=0.8,
    low=0.5,
    high=0.95,
    unit="share",
    meaning="Most of a Python function's own time that is taken to be the profiler's.",
    source="Assumed.",
)
UNEXPLAINED_SHARE = Assumption(
    value=0.15,
    low=0.05,
    high=0.4,
    unit="share",
    meaning="Least share of the time around events that no profiler overhead explains.",
    source="Assumed.",
)
SPARSE_EVENTS_NS = Assumption(
    value=30_000.0,
    low=10_000.0,
    high=100_000.0,
    unit="ns",
    meaning="With fewer events than one in this time, profiler events do not take the time.",
    source="Assumed.",
)
HOST_SPEED_EXPONENT = Assumption(
    value=0.7,
    low=0.5,
    high=1.0,
    unit="exponent",
    meaning=(
        "Host-bound step time is proportional to this power of the time of an addition in Python."
    ),
    source=(
        "Fitted to 26 host-bound steps of seven models on one host (82% of the variance). "
        "Predictions of these models are also scored in benchmarks/, so those scores are not "
        "independent of it."
    ),
)
PROCESS_SPREAD = Assumption(
    value=0.20,
    low=0.15,
    high=0.40,
    unit="share",
    meaning="Spread of the host's time for one script between processes.",
    source=(
        "Measured on one host: interleaved runs of host-bound steps spread by 15 to 20% around "
        "their middle."
    ),
)
UNSTEADY_SPEED = Assumption(
    value=1.4,
    low=1.2,
    high=2.0,
    unit="times",
    meaning="From this ratio of slow to fast additions on, the host's cores changed their speed.",
    source="Assumed.",
)
HOST_FACTOR = Assumption(
    value=0.5,
    low=0.1,
    high=1.0,
    unit="share",
    meaning="Share of a trace's host time that is needed where the device sets the step's time.",
    source="Assumed: all values are possible.",
)
LONG_PYTHON_OPERATORS = Assumption(
    value=20,
    low=5,
    high=50,
    unit="operators",
    meaning=(
        "Python between two operators that takes longer than this many operators is the script's "
        "own work."
    ),
    source="Assumed.",
)
LOOP_CALLS = Assumption(
    value=16,
    low=8,
    high=64,
    unit="calls",
    meaning="A function called this often within one such stretch is called in a loop.",
    source="Assumed.",
)
ROLLOUT_CALLS = Assumption(
    value=8,
    low=4,
    high=32,
    unit="calls",
    meaning=(
        "This many calls of one module without a backward, in a training step, are a rollout or an "
        "evaluation."
    ),
    source="Assumed.",
)
HOST_SCALE_LIMIT = Assumption(
    value=0.8,
    low=0.6,
    high=0.95,
    unit="share",
    meaning=(
        "A phase that takes this share of its time with a host that costs nothing was held up by "
        "the device."
    ),
    source="Assumed.",
)
CPU_WAIT_LIMIT = Assumption(
    value=0.15,
    low=0.05,
    high=0.3,
    unit="share",
    meaning=(
        "Threads that waited for a CPU core for more than this share of their time were not alone "
        "on the machine."
    ),
    source="Seen: 1 to 2% on quiet machines.",
)
STOLEN_LIMIT = Assumption(
    value=0.05,
    low=0.02,
    high=0.2,
    unit="share",
    meaning="Share of a virtual machine's core time taken by others from which it is reported.",
    source="Assumed.",
)
CPU_QUIET = Assumption(
    value=0.10,
    low=0.03,
    high=0.2,
    unit="share",
    meaning=(
        "A thread that waits for a core for less than this share of its time is on a quiet machine."
    ),
    source="Assumed.",
)
SPINNING_SHARE = Assumption(
    value=0.85,
    low=0.6,
    high=0.95,
    unit="share",
    meaning="A thread that is runnable for more than this share of the step spins.",
    source="Seen: 0.48 for threads that sleep between small operators, 1.0 for threads that spin.",
)
OWN_WORK_SHARE = Assumption(
    value=0.25,
    low=0.1,
    high=0.5,
    unit="share",
    meaning=(
        "A step whose roofline minimum is more than this share keeps its threads busy with work."
    ),
    source="Assumed.",
)
CORES_FULL = Assumption(
    value=0.85,
    low=0.7,
    high=0.95,
    unit="share",
    meaning="From this share of busy cores on, there is no core for another data worker.",
    source="Assumed.",
)
AWAKE_SHARE = Assumption(
    value=0.95,
    low=0.9,
    high=1.0,
    unit="share",
    meaning="Share of its time that a thread of a step without waits is awake.",
    source="Assumed.",
)
CORE_MOVE_NS = Assumption(
    value=50e6,
    low=10e6,
    high=200e6,
    unit="ns",
    meaning=(
        "Time for which a thread shares its core with a data worker before the scheduler moves it."
    ),
    source="Assumed.",
)
UNEVEN_PAGES = Assumption(
    value=2.0,
    low=1.3,
    high=4.0,
    unit="times",
    meaning="A step with page faults that takes this many times a step without had other work.",
    source="Assumed.",
)
PAGE_COST_FACTOR = Assumption(
    value=4.0,
    low=1.0,
    high=6.0,
    unit="times",
    meaning="Most that a page fault costs in a step relative to alone.",
    source="Assumed.",
)
PAGE_THREADS = Assumption(
    value=2,
    low=1,
    high=4,
    unit="threads",
    meaning="Threads whose page faults the system serves one after the other.",
    source="Seen with two threads; more were not tried.",
)
PAGE_SHARE = Assumption(
    value=0.9,
    low=0.5,
    high=1.0,
    unit="share",
    meaning="Most of an operator's time that clearing its memory may be.",
    source="Assumed.",
)
PROFILER_COST_FACTOR = Assumption(
    value=1.0,
    low=0.25,
    high=2.5,
    unit="times",
    meaning="Cost of the profiler for an event relative to the usual cost.",
    source="Assumed.",
)
