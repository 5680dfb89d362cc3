"""A real headless Chromium, for tests that look at pages."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
    "--force-device-scale-factor=1",
)


# A page that stays empty is for the test to judge.
_MOST_LOOKS, _LOOK_S = 100, 0.05


class Browser:
    """Opens pages; keeps their console messages and requests."""

    def __init__(self) -> None:
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        driver = shutil.which("chromedriver")
        if browser is None or driver is None:
            pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
        self._profile = tempfile.mkdtemp(prefix="boundby-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*_FLAGS, f"--user-data-dir={self._profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver = webdriver.Chrome(options=options, service=Service(driver))
        self._driver.set_script_timeout(20)

    def close(self) -> None:
        self._driver.quit()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path) -> Page:
        self._driver.get_log("browser")
        self._driver.get_log("performance")
        self._driver.get(path.resolve().as_uri())
        self._wait_until_drawn()
        return Page(self._driver)

    def _wait_until_drawn(self) -> None:
        """A busy machine may report a page as loaded before its script has drawn it."""
        drawn = (
            "return document.readyState === 'complete'"
            " && (document.querySelector('main') ?? document.body).children.length > 0"
        )
        for _ in range(_MOST_LOOKS):
            if self._driver.execute_script(drawn):
                return
            time.sleep(_LOOK_S)


class Page:
    """A page that is open."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def run(self, script: str, *arguments: object) -> Any:
        return self._driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self._driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def one(self, selector: str) -> WebElement:
        found: WebElement = self._driver.find_element(By.CSS_SELECTOR, selector)
        return found

    def text(self, selector: str) -> str:
        return self.one(selector).get_attribute("textContent") or ""

    def texts(self, selector: str) -> list[str]:
        return [element.get_attribute("textContent") or "" for element in self.all(selector)]

    def click(self, selector: str) -> None:
        self.run("arguments[0].click()", self.one(selector))

    def look_at(self, selector: str) -> None:
        """Scroll there and let it be drawn."""
        self.run("arguments[0].scrollIntoView({behavior: 'instant'})", self.one(selector))
        self.settle()

    def wait_for(self, script: str) -> Any:
        """What a script hands to the function it gets as its last argument."""
        return self._driver.execute_async_script(script)

    def settle(self) -> None:
        """Wait two frames, until requested drawing is done."""
        self.wait_for(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        )

    def command(self, name: str, arguments: dict[str, Any]) -> Any:
        """A command of Chromium's own protocol."""
        return self._driver.execute_cdp_cmd(name, arguments)

    @contextlib.contextmanager
    def frame(self, selector: str) -> Iterator[None]:
        """Inside a frame of the page."""
        self._driver.switch_to.frame(self.one(selector))
        try:
            yield
        finally:
            self._driver.switch_to.default_content()

    def complaints(self) -> list[str]:
        """All that was written to the console."""
        return [str(entry["message"]) for entry in self._driver.get_log("browser")]

    def requests(self) -> list[str]:
        """All requests besides the page itself."""
        asked = []
        for entry in self._driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] != "Network.requestWillBeSent":
                continue
            request = message["params"]
            # The browser's start page may still be loading when the first page opens.
            own = request["documentURL"].startswith("chrome://")
            if request["type"] != "Document" and not own:
                asked.append(request["request"]["url"])
        return asked
