"""What MkDocs is told about docs/, so that the same pages are read on a forge and on the site.

- The navigation is the tables of docs/README.md: a section for each heading, a page for each first link.
- README.md and its neighbours at the root are pages of the site, too.
- A link to a file that the site has not goes to the repository, or stays a word while none is known (``extra.source``).
- Text between ``<!-- made for the site: NAME -->`` and ``<!-- end -->`` is for readers without the site, which has a
  reference there that is made from the code.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for tools.site, also where mkdocs-click imports it

from tools.site import client, commands, tables  # noqa: E402 - the line above finds it

os.environ["COLUMNS"] = "100"  # the width of usages and options

# Files of the root that are pages, and their places on the site.
MORE = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "deploy/README.md": "deploy.md",
}
MADE = {
    "api calls": tables.api_calls,
    "cheat sheets": tables.cheat_sheets,
    "errors": tables.errors,
    "metrics": tables.metrics,
    "plgd tables": tables.plgd_tables,
    "table of commands": commands.table,
}
MADE |= {f"commands {page}": lambda page=page: commands.blocks(page) for page in commands.PAGES}
MADE |= {f"client {page}": lambda page=page: client.blocks(page) for page in client.PAGES}

_MARK = re.compile(
    r"^<!-- made for the site: ([^\n]+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
DECISIONS = "decisions/README.md"
FEW = 3  # links of a row that are no section of their own
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)```(\w*)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    config.nav = navigation()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for name, place in MORE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in what is made, and lead links to where the site has their files."""
    home = source_of(page.file.src_uri)
    if home == DOCS / "README.md":
        page.meta["hide"] = ["navigation", "toc"]
    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [LINK.sub(lambda found: led(found, home, config), part) for part in parts[::2]]
    text = _FENCE.sub(
        lambda found: f"{found[1]}```{found[2].replace('console', 'sh')}", "".join(parts)
    )
    return _MARK.sub(made, text)


def made(found: re.Match[str]) -> str:
    """The reference with a name."""
    if found[1] not in MADE:
        raise PluginError(f"{found[0]}: there is no such reference; there are {', '.join(MADE)}")
    return MADE[found[1]]()


def source_of(place: str) -> Path:
    """The file of a page."""
    return next((ROOT / name for name, at in MORE.items() if at == place), DOCS / place)


def place_of(source: Path) -> str | None:
    """Where the site has a file; None if it has it not."""
    if source.is_dir():
        source /= "README.md"
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS).as_posix()
    return MORE.get(source.relative_to(ROOT).as_posix())


def led(found: re.Match[str], home: Path, config: MkDocsConfig) -> str:
    """A link of a page, as the site has it."""
    image, text, target = found.groups()
    if "://" in target or target.startswith("#"):
        return found[0]
    file, hash_, anchor = target.partition("#")
    source = (home.parent / file).resolve()
    place = place_of(source)
    if place is None:
        if not source.exists():
            return found[0]  # MkDocs reports it
        base = config.extra["source"].rstrip("/")
        return f"[{text}]({base}/{source.relative_to(ROOT)})" if base else text
    here = place_of(home)
    assert here is not None
    way = posixpath.relpath(place, posixpath.dirname(here) or ".")
    return f"{image}[{text}]({way}{hash_}{anchor})"


def navigation() -> list[Any]:
    """The first page, and a section for each heading of docs/README.md with the pages of its tables.

    A row with many links is a section of its own. A page is listed once, there if it is in one.
    """
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]
    rows = {title: list(rows_of(rest)) for title, _, rest in parts}
    listed = {place for each in rows.values() for _, row in each if len(row) > FEW for place in row}
    found: list[Any] = ["README.md"]
    for title, section in rows.items():
        pages: list[Any] = []
        for task, row in section:
            if len(row) > FEW:
                pages.append({task: [{label: place} for place, label in row.items()]})
                continue
            new = [place for place in row if place not in listed]
            listed.update(new)
            pages += [{"Decisions": decisions()} if place == DECISIONS else place for place in new]
        found.append({title: pages})
    return found


def rows_of(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table: the task, and its pages with their labels."""
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)[2:]:
        task = row.split("|")[1].strip()
        pages: dict[str, str] = {}
        for _, label, target in LINK.findall(row):
            place = place_of((DOCS / target.partition("#")[0]).resolve())
            if place is not None:
                pages.setdefault(place, label[0].upper() + label[1:])
        yield task[0].upper() + task[1:], pages


def decisions() -> list[str]:
    """The list of the decisions, and each of them."""
    return [DECISIONS, *sorted(f"decisions/{each.name}" for each in DOCS.glob("decisions/0*.md"))]
