"""Headless Chromium through chromedriver (W3C WebDriver); tests that need a browser are skipped without Chromium."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
SECONDS = 60

needs_browser = pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium and chromedriver are not installed")


@dataclass(frozen=True, kw_only=True)
class Browser:
    """A WebDriver session."""

    address: str

    def open(self, page: Path) -> None:
        """Opens a file."""
        self._ask("url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """The return value of a script with arguments."""
        return self._ask("execute/sync", {"script": script, "args": list(arguments)})

    def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        """Sets the screen's size; below 600 pixels it emulates a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._devtools("Emulation.setDeviceMetricsOverride", size)
        look = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [look]})

    def bounds(self, selector: str) -> tuple[float, float]:
        """Top and bottom of a selector's first element, in pixels from the top of the page."""
        box = "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        top, bottom = self.run(f"{box} return [box.top + scrollY, box.bottom + scrollY]", selector)
        return top, bottom

    def picture(self, top: float, width: float, height: float) -> bytes:
        """A screenshot of a part of the page, also below the screen, as PNG."""
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        found = self._devtools("Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True})
        return base64.b64decode(found["data"])

    def console(self) -> list[str]:
        """Console messages since the last call."""
        return [entry["message"] for entry in self._ask("se/log", {"type": "browser"})]

    def point(self, selector: str) -> None:
        """Moves the pointer over the first element of a selector."""
        found = self._ask("element", {"using": "css selector", "value": selector})
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": found}
        self._ask("actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._ask("goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ask(self, command: str, body: dict[str, Any]) -> Any:
        return _post(f"{self.address}/{command}", body)


def _post(address: str, body: dict[str, Any]) -> Any:
    prepared = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(prepared, timeout=SECONDS) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"]) from None


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in ``folder``; terminated at the end of the block."""
    driver = subprocess.Popen([str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert driver.stdout is not None
        port = next(found[1] for line in driver.stdout if (found := re.search(r"started successfully on port (\d+)", line)))
        base = f"http://127.0.0.1:{port}/session"
        options = {"binary": BROWSER, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _post(base, {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(address=f"{base}/{session}")
        finally:
            urllib.request.urlopen(urllib.request.Request(f"{base}/{session}", method="DELETE"), timeout=SECONDS).close()
    finally:
        driver.terminate()
        driver.wait()
