"""Pages shown in a browser, and what holds of every one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boundby.model.diagnosis import Diagnosis

if TYPE_CHECKING:
    from tests.browser import Browser, Page


def show(browser: Browser, folder: Path, page: str) -> Page:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return browser.open(path)


def walk(page: Page) -> None:
    """Past every section, through every tab."""
    for section in page.run("return [...document.querySelectorAll('section')].map(s => s.id)"):
        page.look_at(f"#{section}")
    for tab in range(len(page.all("[role=tab]"))):
        page.click(f"#evidence-tab-{tab}")
    page.settle()


def check_bars(page: Page, diagnosis: Diagnosis) -> None:
    """Each group's segments are as wide as its share."""
    widths = page.run(
        "const bar = document.getElementById('account-bar').getBoundingClientRect().width;"
        "return [...document.querySelectorAll('#account-bar .segment')].map(s =>"
        " [s.dataset.group, s.getBoundingClientRect().width / bar])"
    )
    for name, group in diagnosis.account.groups().items():
        drawn = sum(width for of, width in widths if of == name)
        assert drawn == pytest.approx(group.share, abs=0.01)


def check_dots(page: Page, diagnosis: Diagnosis) -> None:
    """One dot for each operator with a cost, where its figures put it, as large as its time."""
    # It is drawn when it comes near to being seen, which a busy machine may notice late: it stays
    # in view until then.
    page.wait_for(
        "const done = arguments[0], { roofline } = boundbyPage;"
        "document.querySelector('.plot.roofline')?.scrollIntoView({behavior: 'instant'});"
        "const look = () => !roofline || roofline.chart() ? done() : requestAnimationFrame(look);"
        "look();"
    )
    dots = page.run(
        "const { roofline } = boundbyPage; if (!roofline) return [];"
        "const chart = roofline.chart();"
        "return chart.getOption().series.filter(s => s.type === 'scatter').flatMap(s =>"
        " s.data.map(d => ({ index: d.op, value: d.value, size: d.symbolSize,"
        " strip: d.strip, at: chart.convertToPixel({ xAxisIndex: d.strip ? 0 : 1,"
        " yAxisIndex: d.strip ? 0 : 1 }, d.value) })))"
    )
    costed = [i for i, row in enumerate(diagnosis.ops) if row.ns and (row.bytes or row.flops)]
    assert sorted(dot["index"] for dot in dots) == costed
    longest = max((diagnosis.ops[i].ns for i in costed), default=0.0)
    for dot in dots:
        row = diagnosis.ops[dot["index"]]
        assert row.bytes
        assert dot["strip"] == (not row.flops)
        if row.flops:
            assert dot["value"][0] == pytest.approx(row.flops / row.bytes, rel=1e-4)
        amount = row.flops or row.bytes
        assert dot["value"][1] == pytest.approx(amount / row.ns * 1e9, rel=1e-4)
        if dot["size"] > 5:
            assert (dot["size"] / 52) ** 2 == pytest.approx(row.ns / longest, rel=1e-4)
        assert 0 <= dot["at"][0] <= 1280


def check_nothing_ran(page: Page) -> None:
    assert page.all("img") == []
    assert page.run("return document.scripts.length") == 2


def open_tab(page: Page, words: str) -> None:
    names = page.texts("[role=tab]")
    page.click(f"#evidence-tab-{names.index(words)}")
