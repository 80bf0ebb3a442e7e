"""The links, pages and make verbs that the documents name exist. Their examples: tests/test_howtos.py."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALL_PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINKED_PAGES = [*ALL_PAGES, *sorted((ROOT / "deploy").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks of code, whose brackets are no links."""
    kept = []
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return "\n".join(kept)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        text = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


def broken_links(page: Path) -> list[str]:
    """The links of a page, but for those to other sites, that lead to no file or to no heading."""
    broken = []
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", LINKED_PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c, d\n\n## Again\n\n## Again\n\n"
        "[1](#a-b-c-d) [2](page.md#again-1) [3](#again-2) [4](other.md) [5](page.md#a) [6](https://x.org/#y)\n"
        "```text\n[7](nowhere.md)\n```\n"
    )
    assert broken_links(page) == ["#again-2", "other.md", "page.md#a"]


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
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
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
