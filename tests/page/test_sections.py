"""Each section of the page beside the diagnosis, used as a person would use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from boundby.report.page import diagnosis_page
from tests.diagnoses import full_diagnosis
from tests.page.showing import open_tab, show

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser import Browser, Page


def test_verdict_account_and_first_finding_are_at_the_top(page: Page) -> None:
    diagnosis = full_diagnosis()
    assert page.text("h1").startswith("Overhead-bound")
    assert "14.6 ms" in page.text(".step-time")
    first, line = page.texts(".answer")
    assert diagnosis.findings[0].fault in first
    assert diagnosis.findings[0].change in first
    assert diagnosis.lines[0].where.rsplit("/", 1)[-1] in line
    gains = page.texts(".gain")
    assert len(gains) == 3
    assert gains[0].startswith("zero overhead")


def test_warnings_are_visible(page: Page) -> None:
    assert page.texts("main > .warnings li") == [note.text for note in full_diagnosis().notes]
    assert page.run(
        "const box = document.querySelector('main > .warnings').getBoundingClientRect();"
        "return box.height > 20 && box.top < 900"
    )


def test_table_can_be_sorted_searched_and_copied(page: Page) -> None:
    diagnosis = full_diagnosis()
    open_tab(page, "Operators")
    rows = '[data-table="operators"] tbody tr'
    assert len(page.all(rows)) == len(diagnosis.ops)

    page.click('[data-table="operators"] th:nth-child(4) button')
    calls = [int(text) for text in page.texts(f"{rows} td:nth-child(4)")]
    assert calls == sorted((row.count for row in diagnosis.ops), reverse=True)
    page.click('[data-table="operators"] th:nth-child(4) button')
    assert [int(text) for text in page.texts(f"{rows} td:nth-child(4)")] == calls[::-1]
    assert page.one("th[aria-sort]").get_attribute("aria-sort") == "ascending"

    page.one('[data-table="operators"] input').send_keys("addmm")
    wanted = [row for row in diagnosis.ops if "addmm" in row.name]
    assert wanted
    assert len(page.all(rows)) == len(wanted)

    page.run(
        "window.copied = null;"
        "navigator.clipboard.writeText = async (text) => { window.copied = text; };"
    )
    page.click('[data-table="operators"] .tools button')
    heading, *lines = page.run("return window.copied").split("\n")
    assert heading.split("\t")[:3] == ["bound", "operator", "time"]
    assert len(lines) == len(wanted)
    copied = [float(line.split("\t")[2]) for line in lines]
    assert sorted(copied) == pytest.approx(sorted(row.ns for row in wanted))


def test_module_tree_adds_up(page: Page) -> None:
    diagnosis = full_diagnosis()
    open_tab(page, "Modules")
    shares = page.texts('[data-table="modules"] tbody tr[aria-level="1"] td:nth-child(3)')
    total = sum(row.share for row in diagnosis.modules)
    assert sum(float(text.rstrip("%")) / 100 for text in shares) == pytest.approx(total, abs=0.02)
    assert any(
        "\N{MULTIPLICATION SIGN}" in text
        for text in page.texts('[data-table="modules"] td:first-child')
    )
    page.click('[data-table="modules"] input[type=checkbox]')
    names = page.texts('[data-table="modules"] tbody td:first-child')
    assert any(name.strip().startswith("Linear_") for name in names)


def test_a_click_on_a_dot_filters_the_tables(page: Page) -> None:
    diagnosis = full_diagnosis()
    open_tab(page, "Operators")
    page.look_at("#roofline")
    at = page.run(
        "const chart = boundbyPage.roofline.chart();"
        "const dot = boundbyPage.roofline.dots.find(d => !d.strip);"
        "const box = chart.getDom().getBoundingClientRect();"
        "const [x, y] = chart.convertToPixel({ xAxisIndex: 1, yAxisIndex: 1 }, [dot.x, dot.y]);"
        "return { x: box.left + x, y: box.top + y }"
    )
    mouse(page, "mouseMoved", at)
    page.settle()
    assert page.one("#tooltip").is_displayed()
    assert "intensity" in page.text("#tooltip")
    for kind in ("mousePressed", "mouseReleased"):
        mouse(page, kind, at)
    page.settle()
    assert len(page.all('[data-table="operators"] tbody tr')) == 1
    assert page.text("#filter").startswith("only ")
    assert "1 of" in page.text('[data-table="operators"] [role=status]')
    page.click("#filter button")
    assert len(page.all('[data-table="operators"] tbody tr')) == len(diagnosis.ops)


def mouse(page: Page, kind: str, at: dict[str, float]) -> None:
    pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
    page.command("Input.dispatchMouseEvent", {"type": kind, **at, **pressed})


def test_what_if_shows_the_replayed_combination(page: Page) -> None:
    diagnosis = full_diagnosis()
    first, second, third = (finding.fault for finding in diagnosis.findings[:3])
    page.click(f'[data-fault="{first}"]')
    assert page.text("#what-if-time") == "8.76 ms"
    assert not page.one(f'[data-fault="{third}"]').is_enabled()
    reason = page.run(
        f"return document.querySelector('[data-fault=\"{third}\"]').parentElement.textContent"
    )
    assert f"cannot be combined with {first}" in reason
    page.click(f'[data-fault="{second}"]')
    assert page.text("#what-if-time") == "7.30 ms"
    widths = page.run(
        "return [...document.querySelectorAll('.then .segment')]"
        ".map(s => parseFloat(s.style.width))"
    )
    assert widths == pytest.approx([30, 20, 40, 10])
    page.click(f'[data-fault="{first}"]')
    assert page.one(f'[data-fault="{third}"]').is_enabled()


def test_larger_batches_are_shown_with_their_throughput(page: Page) -> None:
    rows = page.texts("table.batches tbody tr")
    assert [row.startswith(("2 times", "4 times")) for row in rows] == [True, True]
    assert [row.rsplit("ms", 1)[1] for row in rows] == ["1.60x", "2.00x"]


def test_proof_is_shown_with_its_prediction(page: Page) -> None:
    fault = full_diagnosis().findings[0].fault
    intervals = page.texts(f"#finding-{fault} [data-interval]")
    assert [text.split("x")[0] for text in intervals] == ["predicted1.70", "measured1.60"]
    assert "kept" in page.text(f"#finding-{fault} .proof")
    left, width = page.run(
        f"const r = document.querySelector('#finding-{fault} [data-interval=measured] .range');"
        "return [parseFloat(r.style.left), parseFloat(r.style.width)]"
    )
    # On a scale from 0.98 to 1.92.
    assert left == pytest.approx(100 * (1.55 - 0.98) / 0.94, rel=1e-3)
    assert width == pytest.approx(100 * 0.11 / 0.94, rel=1e-3)


def test_ranks_show_the_slowest_rank(page: Page) -> None:
    assert "wait for rank 2" in page.text("#ranks")
    assert page.text("tr.late th").startswith("2")
    assert "no such file" in page.text("#ranks")


def test_machine_section_has_roofs_curves_and_age(page: Page) -> None:
    page.look_at("#machine")
    assert "ago" in page.text("#machine .heading")
    assert "memory.dram" in page.text("#roofs")
    assert "5.00 TB/s" in page.text("#roofs")
    assert "80%" in page.text("#roofs")
    assert len(page.all("#machine canvas")) == 2


def test_estimated_step_shows_both_verdicts(browser: Browser, tmp_path: Path) -> None:
    """The top and the evidence agree on which figure is measured and which is estimated."""
    full = full_diagnosis()
    replace = msgspec.structs.replace
    step = replace(
        full.step,
        wall_source="profiled",
        wall_interval_ns=(12e6, 20e6),
        samples_ns=[21.2e6],
        dilation=None,
        profiled_ns=21.2e6,
        kernels=1,
    )
    verdict = replace(full.verdict, bound_by="overhead", or_bound_by="bandwidth", if_free={})
    verdict = replace(verdict, if_free={"overhead": 13336300000.0}, uncertain=True)
    estimated = replace(full, step=step, verdict=verdict)
    page = show(browser, tmp_path, diagnosis_page(estimated))
    assert page.text("h1").startswith("Overhead- or bandwidth-bound")
    words = page.text(".step-time")
    assert "14.6 ms" in words
    assert "estimated without the profiler, 21.2 ms with it, 1 kernel" in words
    assert "steps" not in words
    assert "over 100x faster" in page.texts(".gain")[0]
    open_tab(page, "Kernels")
    assert full.kernel_classes[0].kernel_class in page.text('[data-table="kernels"]')
