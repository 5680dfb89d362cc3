"""The timeline under mouse and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.diagnoses import full_diagnosis

if TYPE_CHECKING:
    from tests.browser import Page


def test_timeline_zooms_to_a_microsecond_and_back(page: Page) -> None:
    page.look_at("#timeline")
    whole = span(page)
    canvas = page.one("canvas.timeline")
    canvas.send_keys("+++")
    assert span(page) == pytest.approx(whole / 8)
    canvas.send_keys("+" * 12)
    assert span(page) < 1000
    canvas.send_keys("0")
    assert span(page) == whole
    at = page.run(
        "const box = document.querySelector('canvas.timeline').getBoundingClientRect();"
        "return { x: box.left + box.width / 4, y: box.top + 60 }"
    )
    page.command(
        "Input.dispatchMouseEvent",
        {"type": "mouseWheel", **at, "deltaX": 0, "deltaY": -100, "modifiers": 2},
    )
    page.settle()
    view = page.run("return boundbyPage.timeline.view()")
    assert view["to"] - view["from"] < whole
    # What was under the pointer stays under it.
    assert view["from"] + (view["to"] - view["from"]) / 4 == pytest.approx(whole / 4, rel=0.01)


def span(page: Page) -> float:
    page.settle()
    view = page.run("return boundbyPage.timeline.view()")
    return float(view["to"] - view["from"])


def test_timeline_search_finds_slices_and_links_kernels_to_launches(page: Page) -> None:
    diagnosis = full_diagnosis()
    page.look_at("#timeline")
    page.one("#timeline-search").send_keys("cudaStreamSynchronize")
    wanted = [piece for piece in diagnosis.timeline if piece.name == "cudaStreamSynchronize"]
    assert page.run("return boundbyPage.timeline.found()") == len(wanted)
    page.one("#timeline-search").send_keys("\n")
    assert "cudaStreamSynchronize" in page.text(".detail")
    kernel = next(i for i, piece in enumerate(diagnosis.timeline) if piece.flow is not None)
    page.run("boundbyPage.timeline.choose(arguments[0])", kernel)
    assert "after its launch" in page.text(".detail")
    page.click(".detail .tools button")
    launch = diagnosis.timeline[diagnosis.timeline[kernel].flow or 0]
    assert launch.name in page.text(".detail")


def test_timeline_draws_the_visible_slices(page: Page) -> None:
    """Where a kernel is, its lane has its colour; where the device idles, it has none."""
    page.look_at("#timeline")
    longest = max(
        (piece for piece in full_diagnosis().timeline if piece.lane == "stream"),
        key=lambda piece: piece.ns,
    )
    page.run(
        "boundbyPage.timeline.zoomTo(arguments[0] - 2 * arguments[1], arguments[0] + 3 *"
        " arguments[1])",
        longest.start_ns,
        longest.ns,
    )
    page.settle()
    pixels = page.run(
        "const canvas = document.querySelector('canvas.timeline');"
        "const context = canvas.getContext('2d');"
        "const y = canvas.height - 10;"
        "return [...context.getImageData(canvas.width / 2, y, 1, 1).data.slice(0, 4)]"
    )
    colour = page.run(
        "const d = document.createElement('div');"
        "d.style.color = getComputedStyle(document.documentElement)"
        f".getPropertyValue('--{'compute' if longest.bound == 'compute' else 'bandwidth'}');"
        "document.body.append(d); return getComputedStyle(d).color"
    )
    assert f"rgb({pixels[0]}, {pixels[1]}, {pixels[2]})" == colour
