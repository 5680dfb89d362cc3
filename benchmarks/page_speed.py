"""How large the report page is, how soon it is ready, how smoothly its timeline moves.

    python benchmarks/page_speed.py [FILE ...]

Each FILE is a saved diagnosis or a trace; without one, the largest page there is: 400 operators and
20,000 slices. In headless Chromium, each page in five fresh tabs, medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import Browser, Page  # noqa: E402
from tests.diagnoses import large_diagnosis  # noqa: E402

from boundby.cli.saved import read_diagnosis  # noqa: E402
from boundby.model.diagnosis import Diagnosis  # noqa: E402
from boundby.report.page import diagnosis_page  # noqa: E402

TIMES = 5
# Frames of a timeline that is zoomed in and moved along, as a person would drag it.
FRAMES = """
const done = arguments[0], timeline = boundbyPage.timeline, end = timeline.view().to;
const times = [];
let last = performance.now();
const step = (n) => {
  const now = performance.now();
  if (n) times.push(now - last);
  last = now;
  if (n === 60) return done(times);
  const span = end * (1 - n / 80);
  timeline.zoomTo((end - span) * (n / 60), (end - span) * (n / 60) + span);
  requestAnimationFrame(() => step(n + 1));
};
step(0);
"""


def ready_ms(page: Page) -> float:
    return float(page.run("return performance.getEntriesByName('boundby-ready')[0].startTime"))


def main() -> None:
    given = {path: read_diagnosis(Path(path)) for path in sys.argv[1:]}
    diagnoses: dict[str, Diagnosis] = given or {"the largest page": large_diagnosis()}
    browser = Browser()
    try:
        for name, diagnosis in diagnoses.items():
            measure(browser, name, diagnosis)
    finally:
        browser.close()


def measure(browser: Browser, name: str, diagnosis: Diagnosis) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(diagnosis_page(diagnosis), encoding="utf-8")
        ready, frames = [], []
        for _ in range(TIMES):
            page = browser.open(path)
            ready.append(ready_ms(page))
            page.look_at("#timeline")
            frames += page.wait_for(FRAMES)
        frames.sort()
        print(
            f"{name}: {path.stat().st_size / 1e6:.2f} MB, {len(diagnosis.ops)} operators, "
            f"{len(diagnosis.timeline)} slices; ready in {statistics.median(ready):.0f} ms "
            f"({min(ready):.0f} to {max(ready):.0f}); a frame of the moving timeline "
            f"{statistics.median(frames):.1f} ms, 95% under {frames[int(0.95 * len(frames))]:.1f}"
        )


if __name__ == "__main__":
    main()
