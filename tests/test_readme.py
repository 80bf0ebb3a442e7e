"""What the documents name exists: links, pages, verbs of make. Their examples: tests/test_howtos.py."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALL_PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


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
