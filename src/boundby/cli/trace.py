"""boundby trace: diagnose existing profiler traces, one rank or many."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli.options import output_options
from boundby.cli.outputs import Outputs

if TYPE_CHECKING:
    from boundby.model import Machine

_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def parse_time(text: str) -> float:
    """Parse 84.2ms, 1.3s or 900us as ns."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(ns|us|ms|s)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(f"{text!r} is not a time: write 84.2ms, 1.3s or 900us")
    return float(match[1]) * _UNITS[match[2]]


def _silent(what: str, share: float) -> None:
    """Progress that is not shown."""


def _machine(name: str) -> Machine:
    """A saved machine, or the datasheet of the chip of this name."""
    from boundby.hardware import cache

    if Path(name).exists() or name.endswith(".json"):
        return cache.read(Path(name))
    from boundby.plan import chips

    return chips.find(name).machine


@click.command(name="trace")
@click.option(
    "--machine",
    "machine_name",
    metavar="NAME|FILE",
    help="The chip's name (h100), or roofs saved with `boundby machine --json`; default: the "
    "datasheet of the device that the trace names.",
)
@click.option("--wall", metavar="TIME", help="Step time without a profiler, if known: 84.2ms.")
@click.option(
    "--model",
    "model_file",
    metavar="CONFIG",
    type=click.Path(path_type=Path),
    help="The model's config.json: compare decode steps with the minimum time to read its weights.",
)
@click.option(
    "--capture",
    "capture_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A trace of the same model without CUDA graphs, or of their capture: names the operators "
    "of replayed graphs.",
)
@click.option("--index", type=int, metavar="N", help="Index of the step; default: the median.")
@output_options(csv=True)
@click.argument("traces", nargs=-1, required=True)
def command(
    machine_name: str | None,
    wall: str | None,
    model_file: Path | None,
    capture_file: Path | None,
    index: int | None,
    outputs: Outputs,
    traces: tuple[str, ...],
) -> None:
    """Diagnose profiler traces: one file, several, a folder of ranks, or URLs.

    Formats, found by content: torch profiler, XLA, Nsight Systems sqlite, rocprofv3 JSON, zipped.
    """
    from boundby.cli.console import progress_bar
    from boundby.session import traces as job

    wall_ns = parse_time(wall) if wall else None
    machine = _machine(machine_name) if machine_name else None
    weights = None
    if model_file is not None:
        from boundby.plan.weights import model_weights

        weights = model_weights(model_file)
    paths = job.find_traces(traces)
    is_shown = not outputs.quiet and len(paths) > 1
    with progress_bar("reading") if is_shown else nullcontext(_silent) as progress:
        diagnosis = job.diagnose_traces(
            paths,
            machine,
            wall_ns=wall_ns,
            index=index,
            progress=progress,
            weights=weights,
            capture=capture_file,
        )
    outputs.write(diagnosis)
    outputs.show(diagnosis)
