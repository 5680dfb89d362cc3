"""The page with everything in it, open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boundby.report.page import diagnosis_page
from tests.diagnoses import full_diagnosis
from tests.page.showing import show

if TYPE_CHECKING:
    from tests.browser import Browser, Page


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Page:
    return show(browser, tmp_path, diagnosis_page(full_diagnosis()))
