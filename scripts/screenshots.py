"""Takes the pictures of the report page that README and docs show, from a real diagnosis.

    python scripts/screenshots.py step.json            # a saved diagnosis, or a trace
    python scripts/screenshots.py step.json --out docs/images --zoom 72ms-76ms

Needs Chromium with its driver. Pictures stay under 250 kB each.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import Browser, Page  # noqa: E402

from boundby.cli.saved import read_diagnosis  # noqa: E402
from boundby.cli.trace import parse_time  # noqa: E402
from boundby.model.diagnosis import Diagnosis  # noqa: E402
from boundby.report.page import diagnosis_page  # noqa: E402

MOST_BYTES = 250_000
MARGIN = 14  # px under a section
ABOVE = 18  # px of a section's own padding that are left out
# Default part of the step that the image of the timeline shows.
SHOWN = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("file", type=Path, help="a saved diagnosis, or a trace")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--zoom", help="what the timeline shows: 72ms-76ms")
    given = parser.parse_args()
    diagnosis = read_diagnosis(given.file)
    given.out.mkdir(parents=True, exist_ok=True)
    window = _window(diagnosis, given.zoom)
    browser = Browser()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            path.write_text(diagnosis_page(diagnosis), encoding="utf-8")
            for scheme in ("light", "dark"):
                take(browser.open(path), given.out, scheme, window)
    finally:
        browser.close()


def take(page: Page, out: Path, scheme: str, window: tuple[float, float] | None) -> None:
    page.command(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    # A page that is tall enough is drawn whole, and nothing sticks to its top.
    page.command(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1200, "height": 3000, "deviceScaleFactor": 1, "mobile": False},
    )
    page.run("document.querySelector('header').style.position = 'static'")
    page.settle()
    if window and page.all("#timeline"):
        page.run("boundbyPage.timeline.zoomTo(...arguments)", *window)
        page.settle()
    sections = [("report", "header", "#findings")]
    if scheme == "light":
        sections += [(name, f"#{name}", f"#{name}") for name in ("roofline", "timeline")]
    for name, first, last in sections:
        if page.all(first) and page.all(last):
            save(page, out / f"{name}-{scheme}.png", first, last)


def save(page: Page, path: Path, first: str, last: str) -> None:
    """Save an image from one element to another."""
    box = page.run(
        "const [a, b] = [...arguments].map(s => document.querySelector(s).getBoundingClientRect());"
        "return { top: a.top + scrollY, bottom: b.bottom + scrollY, width: innerWidth }",
        first,
        last,
    )
    top = box["top"] + (0 if first == "header" else ABOVE)
    clip = {"x": 0, "y": top, "width": box["width"], "height": box["bottom"] + MARGIN - top}
    step_model = page.command(
        "Page.captureScreenshot", {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
    )
    content = base64.b64decode(step_model["data"])
    if len(content) > MOST_BYTES:
        sys.exit(f"{path} would be {len(content)} bytes: more than {MOST_BYTES}")
    path.write_bytes(content)
    print(f"{path} {len(content) / 1000:.0f} kB")


def _window(diagnosis: Diagnosis, zoom: str | None) -> tuple[float, float] | None:
    if zoom:
        low, _, high = zoom.partition("-")
        return parse_time(low), parse_time(high)
    kernels = [piece for piece in diagnosis.timeline if piece.lane.startswith("stream")]
    if not kernels:
        return None
    longest = max(kernels, key=lambda piece: piece.ns)
    end = max(piece.start_ns + piece.ns for piece in kernels)
    middle, half = longest.start_ns + longest.ns / 2, SHOWN * end / 2
    return middle - half, middle + half


if __name__ == "__main__":
    main()
