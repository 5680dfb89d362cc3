"""The page in a real Chromium: it loads in silence, and draws what the diagnosis says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import boundby
from boundby.analysis.comparison import compare
from boundby.report.page import comparison_page, diagnosis_page, in_notebook
from tests.diagnoses import (
    EVIL,
    bare_diagnosis,
    evil_diagnosis,
    full_diagnosis,
    large_diagnosis,
    real_diagnosis,
)
from tests.page.showing import check_bars, check_dots, check_nothing_ran, show, walk

if TYPE_CHECKING:
    from tests.browser import Browser, Page

DATA = Path(__file__).parents[1] / "data" / "h200"
SHARED = Path(__file__).parents[3] / "shared" / "traces" / "h200"
TRACES = {path.name: path for folder in (SHARED, DATA) for path in sorted(folder.glob("*.gz"))}


@pytest.mark.parametrize("name", TRACES)
def test_page_loads_without_console_messages_or_requests(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    diagnosis = boundby.load(TRACES[name])
    page = show(browser, tmp_path, diagnosis_page(diagnosis))
    walk(page)
    assert page.complaints() == []
    assert page.requests() == []
    check_bars(page, diagnosis)
    check_dots(page, diagnosis)


def test_theme_switches_between_light_and_dark(page: Page) -> None:
    scheme = "return document.documentElement.dataset.scheme"
    page.command(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    page.settle()
    assert page.run(scheme) == "dark"
    page.click("#scheme")
    assert page.run(scheme) == "light"
    page.run("localStorage.clear()")
    page.command("Emulation.setEmulatedMedia", {"features": []})


def test_printing_shows_every_table(page: Page) -> None:
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.command("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        page.settle()
        assert all(panel.is_displayed() for panel in page.all("[role=tabpanel]"))
        assert not page.one("header nav").is_displayed()
        assert all(button.is_displayed() for button in page.all("thead button"))
        assert page.run(
            "const canvas = document.querySelector('canvas.timeline');"
            "const { data } = "
            "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
            "return data.some(value => value > 0)"
        ), "the timeline is drawn though nobody scrolled there"
    finally:
        page.command("Emulation.setEmulatedMedia", {"media": ""})


def test_every_control_is_reachable_by_keyboard(page: Page) -> None:
    page.run("document.activeElement?.blur()")
    page.one("body").send_keys("\t")
    seen = []
    for _ in range(60):
        tag = page.run(
            "const e = document.activeElement;return e.id || e.className || e.tagName.toLowerCase()"
        )
        seen.append(tag)
        page.run("return document.activeElement").send_keys("\t")
    assert "scheme" in seen
    assert "timeline" in seen
    assert "timeline-search" in seen
    assert any(tag.startswith("evidence-tab") for tag in seen)


def test_names_with_markup_stay_text(browser: Browser, tmp_path: Path) -> None:
    page = show(browser, tmp_path, diagnosis_page(evil_diagnosis()))
    walk(page)
    page.run("boundbyPage.timeline.choose(0)")
    check_nothing_ran(page)
    assert page.text(".verdict p") == f"{EVIL}."
    assert EVIL in page.text(".detail")
    assert page.complaints() == []


def test_step_with_only_a_time_has_a_page(browser: Browser, tmp_path: Path) -> None:
    page = show(browser, tmp_path, diagnosis_page(bare_diagnosis()))
    walk(page)
    assert page.complaints() == []
    assert page.text("h1").startswith("Bound by something unknown")
    check_bars(page, bare_diagnosis())
    assert page.all("#roofline, #timeline, #tables, #findings, #what-if, #ranks") == []


def test_page_states_that_no_fix_was_found(browser: Browser, tmp_path: Path) -> None:
    tuned = msgspec.structs.replace(full_diagnosis(), findings=[], what_if=[], proofs=[])
    assert tuned.batches
    page = show(browser, tmp_path, diagnosis_page(tuned))
    assert page.text("#findings p") == "No known fault was found."
    assert page.complaints() == []


def test_twenty_thousand_slices_are_drawn(browser: Browser, tmp_path: Path) -> None:
    page = show(browser, tmp_path, diagnosis_page(large_diagnosis()))
    page.look_at("#timeline")
    canvas = page.one("canvas.timeline")
    canvas.send_keys("++")
    page.settle()
    assert page.complaints() == []


def test_comparison_page_shows_slowdowns(browser: Browser, tmp_path: Path) -> None:
    before, after = real_diagnosis(), full_diagnosis()
    made = compare(before, after, names=("before.json", EVIL))
    page = show(browser, tmp_path, comparison_page(made))
    assert page.complaints() == []
    assert page.requests() == []
    check_nothing_ran(page)
    assert len(page.all("#group-differences tbody tr")) == len(made.groups)


def test_notebook_frame_shows_the_page(browser: Browser, tmp_path: Path) -> None:
    frame = in_notebook(real_diagnosis())
    page = show(browser, tmp_path, f"<!doctype html><body>{frame}</body>")
    with page.frame("iframe"):
        assert page.text("h1").startswith("Overhead-bound")
        page.look_at("#timeline")
    assert page.complaints() == []
