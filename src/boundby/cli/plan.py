"""boundby plan: the predicted time of a step on hardware that is not available."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from boundby.model.plan import PlanResult, PlanSearch, PlanTable


class _Tokens(click.ParamType[int]):
    """A number of tokens, as in 4096 or 128k."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).lower()
        number = text.rstrip("km")
        if not number.isdigit() or not int(number) or len(text) > len(number) + 1:
            self.fail(f"{value!r} is no number of tokens: write 4096 or 4k", param, ctx)
        return int(number) * {"k": 1024, "m": 1024**2}.get(text[-1], 1)


@click.command(name="plan")
@click.argument("model", required=False)
@click.argument("shape", required=False)
@click.option("--on", "chip", metavar="CHIP", help="h100, v5p, b200, ... or a saved machine.json.")
@click.option(
    "--chips", type=click.IntRange(min=1), help="Number of chips; selects the best layout."
)
@click.option("--mesh", metavar="AXIS=N,...", help="data, fsdp, tensor, context, pipeline, ...")
@click.option("--batch", metavar="N|4M-tokens", help="Global batch, in sequences or tokens.")
@click.option(
    "--seq",
    "sequence",
    type=_Tokens(),
    help="Sequence length in tokens: 4096, or one image's.",
)
@click.option("--micro-batch", type=float, help="Micro-batch: sequences per replica.")
@click.option("--precision", default="bf16", show_default=True, help="bf16, fp8, int8, nvfp4.")
@click.option("--recompute", default="auto", show_default=True, help="none, selective, full.")
@click.option(
    "--attention",
    type=click.Choice(("fused", "softmax", "eager")),
    default="fused",
    show_default=True,
    help="Fused kernels, a fused softmax, or separate operators.",
)
@click.option("--compiled", is_flag=True, help="No host time for each operator.")
@click.option("--no-overlap", is_flag=True, help="Assume that no collective is overlapped.")
@click.option(
    "--price",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Price of one chip-hour in USD.",
)
@click.option("--search", is_flag=True, help="Rank the layouts that fit.")
@click.option("--sweep", metavar="chips=8..4096", help="The best layout for each number of chips.")
@click.option("--serve", is_flag=True, help="Prefill and decode instead of training.")
@click.option(
    "--in", "input_tokens", type=_Tokens(), default=1024, show_default=True, help="Prompt tokens."
)
@click.option(
    "--out",
    "output_tokens",
    type=_Tokens(),
    default=256,
    show_default=True,
    help="Generated tokens.",
)
@click.option("--weights", default=None, help="Precision of served weights: fp8, int8, int4.")
@click.option("--table", metavar="FILE.csv", help="Predict each row of a table of measurements.")
@click.option("--explain", "term", metavar="TERM", help="The formula of a term; 'all' lists them.")
@click.option("--json", "json_file", metavar="FILE", help="Also write it as JSON (- for stdout).")
@click.option("--html", "html_file", metavar="FILE", help="Write the page, one file.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
def command(**options: Any) -> None:
    """Predict a step on other hardware: MODEL is a name, a config.json, a saved diagnosis, or
    `matmul MxKxN`.

    \b
    boundby plan llama-3.1-8b --on h100 --chips 64 --batch 4M-tokens
    boundby plan config.json --on tpu-v5p --mesh fsdp=16,tensor=4
    boundby plan llama-3.1-70b --on h100 --chips 8 --serve --in 2048 --out 256 --batch 64
    boundby plan matmul 8192x8192x8192 --on v5e
    boundby plan --table training_measured.csv
    """
    from boundby.cli.outputs import check_writable, write_json

    if options["term"]:
        _explain(options["term"])
        return
    check_writable(options["json_file"], options["html_file"])
    result = _plan(options)
    write_json(result, options["json_file"])
    if options["html_file"]:
        _write_page(result, options["html_file"], quiet=options["quiet"])
    if not options["quiet"]:
        _show(result, to_stderr=options["json_file"] == "-")


def _explain(term: str) -> None:
    from boundby.plan import terms

    click.echo("\n".join(terms.names()) if term == "all" else terms.explain(term))


# Options that apply to some requests only.
_LAYOUT = ("mesh", "micro_batch", "recompute", "price")
_PROGRAM = ("attention", "compiled", "no_overlap")
_TRAINING = (*_LAYOUT, *_PROGRAM, "search", "sweep", "sequence")
_SERVING = ("input_tokens", "output_tokens", "weights")
_JOB = (*_TRAINING, *_SERVING, "batch", "serve")
_IGNORED = {
    "table": (*_JOB, "model", "shape", "chip", "chips", "precision"),
    "matmul": _JOB,
    "saved": (*_JOB, "precision"),
    "serve": tuple(one for one in _TRAINING if one not in ("mesh", "price")),
    "search": (*_LAYOUT, "sweep", *_SERVING),
    "sweep": (*_LAYOUT, "chips", *_SERVING),
}


def _check_together(options: dict[str, Any]) -> None:
    """Raise for an option that the request would ignore."""
    from boundby.model.errors import BoundbyError
    from boundby.plan import requests

    request = next((name for name in ("serve", "search", "sweep") if options[name]), None)
    context = click.get_current_context()
    flags = {
        one.name: one.human_readable_name if isinstance(one, click.Argument) else one.opts[0]
        for one in context.command.params
    }
    ignored: tuple[str, ...] = _SERVING
    with_what = "without --serve"
    if options["table"]:
        ignored, with_what = _IGNORED["table"], "with --table, whose rows state it"
    elif options["model"] == "matmul":
        ignored, with_what = _IGNORED["matmul"], "for one product"
    elif requests.is_diagnosis(options["model"]):
        ignored, with_what = _IGNORED["saved"], "for a saved diagnosis"
    elif request:
        ignored, with_what = _IGNORED[request], f"with {flags[request]}"
    command_line = click.core.ParameterSource.COMMANDLINE
    for name in ignored:
        if context.get_parameter_source(name) == command_line:
            raise BoundbyError(f"{flags[name]} has no meaning {with_what}")


def _plan(options: dict[str, Any]) -> PlanResult | PlanSearch | PlanTable:
    from boundby.model.errors import BoundbyError
    from boundby.plan import requests

    if options["table"]:
        from boundby.plan import table

        _check_together(options)
        return table.predict_file(options["table"])
    if not options["model"]:
        raise BoundbyError("plan needs a model, `matmul MxKxN`, --table FILE.csv or --explain TERM")
    _check_together(options)
    if not options["chip"]:
        raise BoundbyError("plan needs a chip: --on h100")
    if options["model"] == "matmul":
        return requests.plan_matmul(
            options["shape"] or "", options["chip"], options["chips"] or 1, options["precision"]
        )
    if options["shape"]:
        raise BoundbyError(f"{options['shape']!r} is one argument too many")
    if options["serve"]:
        return requests.plan_serving(
            options["model"],
            options["chip"],
            count=options["chips"],
            mesh=options["mesh"],
            batch=options["batch"] or "1",
            input_tokens=options["input_tokens"],
            output_tokens=options["output_tokens"],
            precision=options["precision"],
            weights=options["weights"],
            usd_per_hour=options["price"],
        )
    if options["search"] or options["sweep"]:
        counts = requests.parse_range(options["sweep"] or str(options["chips"] or 8))
        return requests.search(
            options["model"],
            options["chip"],
            counts,
            batch=options["batch"],
            sequence=options["sequence"],
            is_sweep=bool(options["sweep"]),
            precision=options["precision"],
            overlap=not options["no_overlap"],
            compiled=options["compiled"],
            attention=options["attention"],
        )
    if requests.is_diagnosis(options["model"]):
        return requests.plan_saved(options["model"], options["chip"], options["chips"] or 1)
    return requests.plan(
        options["model"],
        options["chip"],
        options["mesh"],
        chips_count=options["chips"],
        batch=options["batch"],
        sequence=options["sequence"],
        micro_batch=options["micro_batch"],
        precision=options["precision"],
        recompute=options["recompute"],
        overlap=not options["no_overlap"],
        compiled=options["compiled"],
        attention=options["attention"],
        usd_per_hour=options["price"],
    )


def _write_page(found: PlanResult | PlanSearch | PlanTable, file: str, *, quiet: bool) -> None:
    from pathlib import Path

    from boundby.cli.outputs import announce_page
    from boundby.model import store
    from boundby.model.errors import BoundbyError
    from boundby.model.plan import PlanTable
    from boundby.report.plan_page import plan_page

    if isinstance(found, PlanTable):
        raise BoundbyError("a table of measurements has no page: use --json")
    store.write_bytes(plan_page(found).encode(), Path(file))
    announce_page(Path(file), open_page=False, quiet=quiet)


def _show(found: PlanResult | PlanSearch | PlanTable, *, to_stderr: bool) -> None:
    from boundby.cli.console import error_console, output_console
    from boundby.model.plan import PlanResult, PlanSearch
    from boundby.report.plan import PlanReport, PlanSearchReport, PlanTableReport

    console = error_console() if to_stderr else output_console()
    if isinstance(found, PlanResult):
        console.print(PlanReport(found))
    elif isinstance(found, PlanSearch):
        console.print(PlanSearchReport(found))
    else:
        console.print(PlanTableReport(found))
