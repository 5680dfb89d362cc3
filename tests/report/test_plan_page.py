"""The page of a plan: one file, nothing loaded, text from outside escaped, formulas on demand."""

import re

import msgspec

import boundby
from boundby.model.plan import PlanResult
from boundby.plan import requests
from boundby.report.layout import plain_text
from boundby.report.plan import PlanReport
from boundby.report.plan_page import plan_page

EVIL = "<script>alert(1)</script>"


def _plan() -> PlanResult:
    return boundby.plan("llama-3.1-8b", "h100", "tensor=4,fsdp=16", batch="1M-tokens")


def test_the_page_shows_roofline_parts_and_scaling() -> None:
    page = plan_page(_plan())
    for title in (
        "roofline of one chip",
        "exposed time by part of the step",
        "the same batch on more chips",
    ):
        assert title in page
    assert "network, tensor axis" in page
    assert page.count("<svg") == 4


def test_a_printed_plan_ends_no_line_with_blanks() -> None:
    lines = plain_text(PlanReport(_plan())).splitlines()
    assert len(lines) > 10
    assert all(line == line.rstrip() for line in lines)


def test_each_formula_can_be_opened() -> None:
    plan = _plan()
    page = plan_page(plan)
    assert {term.formula for term in plan.terms} < set(plan.formulas)
    assert "tensor-parallel-limit" in plan.formulas
    assert page.count("<details>") == len(plan.formulas)


def test_plan_page_loads_and_executes_nothing() -> None:
    plan = msgspec.structs.replace(_plan(), title=EVIL, notes=[EVIL], chip=EVIL)
    page = plan_page(plan)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r'(src|href)="', page)
    assert "default-src 'none'" in page or "default-src &#x27;none&#x27;" in page


def test_services_and_sweeps_have_pages() -> None:
    service = requests.plan_serving(
        "llama-3.1-8b", "h100", count=1, batch=8, input_tokens=512, output_tokens=128,
        precision="bf16", weights=None,
    )  # fmt: skip
    assert "throughput against time per token" in plan_page(service)
    sweep = requests.search(
        "llama-3.1-8b", "h100", [8, 16], batch="64", sequence=4096, precision="bf16", is_sweep=True
    )
    assert "step time by number of chips" in plan_page(sweep)


def test_a_service_has_its_times_and_throughput() -> None:
    page = plan_page(
        requests.plan_serving("llama-3.1-8b", "h100", batch=8, input_tokens=512, output_tokens=64)
    )
    for name in ("time to first token", "time per output token", "output tokens/s at batch 8"):
        assert name in page
