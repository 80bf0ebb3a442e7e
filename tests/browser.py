"""Debian's Chromium for tests that look at a page as a person would.

`open_page` starts a browser without a screen and talks to it by its own protocol (DevTools): the page's
JavaScript runs, errors of its console are kept, sizes are those that were laid out, and a picture can be taken.

The browser is $CHROMIUM, the one that `make test` unpacked into .venv/browser, or the machine's.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 120.0  # a browser's start beside a load
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
FLAGS += ("--no-first-run", "--hide-scrollbars", "--disable-background-networking", "--mute-audio")


def command() -> str | None:
    """The browser's file; None when none is here."""
    unpacked = Path(sys.prefix) / "browser" / "chromium"
    for found in (os.environ.get("CHROMIUM"), str(unpacked) if unpacked.exists() else None):
        if found:
            return found
    return shutil.which("chromium") or shutil.which("chromium-headless-shell")


needs_browser = pytest.mark.skipif(command() is None, reason="no Chromium is here")


class Page:
    """One page in a browser."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        self.problems: list[str] = []
        """What the page's console calls an error, and exceptions that nothing caught."""
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A question of the protocol; its answer."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            said = json.loads(self._socket.recv(PATIENCE_S))
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return dict(said["result"])
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        self._events.append(said)
        parameters = said.get("params", {})
        if said["method"] == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"]))
        if said["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(json.dumps(parameters["entry"]))

    def go(self, url: str) -> None:
        """Load a page and wait until all of it is there."""
        self._events.clear()
        answer = self.ask("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        while not any(each["method"] == "Page.loadEventFired" for each in self._events):
            self._note(json.loads(self._socket.recv(PATIENCE_S)))

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and whether its user prefers dark colours."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path | None = None, *, whole: bool = True) -> bytes:
        """A PNG of the page, also written to a file."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(answer["data"])
        if path is not None:
            path.write_bytes(data)
        return data


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where the browser's first page is talked to."""
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if port_file.exists() and "\n" in (text := port_file.read_text()):
            with urllib.request.urlopen(f"http://127.0.0.1:{text.split()[0]}/json/list") as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        select.select([], [], [], 0.02)
    raise RuntimeError(f"the browser does not start: {(profile / 'log').read_text()[-2000:]}")


@contextlib.contextmanager
def open_page(width: int = 1200, height: int = 900) -> Iterator[Page]:
    """An empty page in a browser of its own."""
    found = command()
    assert found is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        with (profile / "log").open("wb") as log:
            process = subprocess.Popen(
                [found, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            address = _address(process, profile)
            with connect(address, max_size=None, open_timeout=PATIENCE_S) as socket:
                page = Page(socket)
                page.resize(width, height)
                yield page
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
