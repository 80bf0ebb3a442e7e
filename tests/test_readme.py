"""What the documents show is true: Python examples run, print what is shown, and name what exists.

A ```python block is run as a program of its own, in the order of its page, against a server that
lives as long as the page. A ```text block right after it is what it prints.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import running_server

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
ALL_PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(
    r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
URL = "nats://127.0.0.1:4222"


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.exists() and EXAMPLE.search(p.read_text())], ids=name
)
def test_examples_print_what_is_shown(page: Path) -> None:
    with running_server("penstock") as server:
        for code, shown in EXAMPLE.findall(page.read_text()):
            program = code.replace(URL, server.url)
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{code}\n{done.stderr}"
            if shown:
                assert done.stdout == shown, code


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link.split("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not missing


def test_the_index_has_every_page() -> None:
    """docs/README.md leads to each page; the decisions have an index of their own."""
    for folder in (ROOT / "docs", ROOT / "docs" / "decisions"):
        index = folder / "README.md"
        linked = {
            (folder / link.split("#")[0]).resolve() for link in LINK.findall(index.read_text())
        }
        pages = {
            page
            for page in folder.rglob("*.md")
            if page != index and (folder.name == "decisions" or page.parent.name != "decisions")
        }
        assert pages - linked == set()


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_make_verbs_that_are_named_exist(page: Path) -> None:
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [
        line
        for kind, text in BLOCK.findall(page.read_text())
        if kind == "console"
        for line in text.split("\n")
    ]
    named = {
        word
        for line in commands
        if line.startswith("make ")
        for word in re.sub(r"#.*|[A-Z_]+=('[^']*'|\S+)", "", line).split()[1:]
    }
    assert named <= known
