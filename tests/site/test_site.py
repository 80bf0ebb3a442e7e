"""The site as it is built: strictly, asking no other site for anything, and its first page in a browser."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import needs_browser, open_page

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?([^"' >]+)"""
    r"""|<link\b(?![^>]*\brel=["']?(?:next|prev|canonical))[^>]*\bhref=["']?([^"' >]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    missing = [
        page
        for page in pages
        if not (
            site / (page.parent if page.stem == "README" else page.with_suffix("")) / "index.html"
        ).exists()
    ]
    assert not missing


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """Fonts and scripts are its own; other sites see nothing of a reader until a link is followed."""
    found = [
        f"{page.relative_to(site)}: {address}"
        for page in site.rglob("*.html")
        for pair in LOADED.findall(page.read_text())
        for address in pair
        if re.match(r"(\w+:)?//", address)
    ]
    found += [
        f"{sheet.relative_to(site)}: {address}"
        for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]
        for address in re.findall(
            r"""(?:url\(|@import )["']?((?:https?:)?//[^"')]+)""", sheet.read_text()
        )
    ]
    assert not found


def test_references_are_made_and_found(site: Path) -> None:
    places = {
        each["location"]
        for each in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    for place in (
        "reference/api-client-key-value/#pelton.KeyValue",
        "reference/cli-streams/#pelton-stream-add",
        "reference/plgd-tables/#raw",
        "howto/publish/",
    ):
        assert place in places
    call = (site / "reference/api-client-key-value/index.html").read_text()
    assert re.search(r'id="pelton\.KeyValue\.put"', call)
    assert "JSConsumerNotFoundErr" in (site / "reference/errors/index.html").read_text() or (
        "10014" in (site / "reference/errors/index.html").read_text()
    )
    assert "without the site" not in call.lower()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and keeps what was asked of other hosts out of the output."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@needs_browser
@pytest.mark.parametrize(
    ("width", "height", "dark"),
    [(1280, 900, False), (1280, 900, True), (390, 844, False)],
    ids=["light", "dark", "phone"],
)
def test_the_first_page_shows_in_one_screen_what_it_is(
    address: str, width: int, height: int, dark: bool
) -> None:
    with open_page() as page:
        page.resize(width, height, dark=dark)
        page.go(address)
        assert page.problems == []
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.title").startswith("Pelton")
        shown = page.run("document.querySelector('article').innerText")
        assert "uvx pelton serve" in shown
        assert "pip install pelton" in shown
        picture = "document.querySelector('img[src$=\"terminal.svg\"]')"
        assert page.run(f"{picture}.naturalWidth") > 0
        assert page.run(f"{picture}.getBoundingClientRect().bottom") <= height
        scheme = page.run("document.body.getAttribute('data-md-color-scheme')")
        assert scheme == ("slate" if dark else "default")
