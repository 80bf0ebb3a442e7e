"""The parts of the reference that the site makes have what the code has."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig

import pelton.embedded
import pelton.sync
import pelton.testing
from pelton.cli.cheat_sheets import CHEATS
from pelton.engine.calls.api_calls import CALLS
from pelton.plgd.tables.schemas import TABLES
from pelton.server.monitor.metrics import CONSUMERS, METRICS, PREFIX, STREAMS
from tools.site import client, commands, hooks, tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def first_cells(table: str) -> list[str]:
    """What stands in the first column."""
    return re.findall(r"^\| `?(.*?)`? \|", table, re.MULTILINE)[1:]


def test_every_call_of_the_api_is_listed() -> None:
    assert first_cells(tables.api_calls()) == [call.pattern for call in CALLS]


def test_every_error_of_the_api_is_listed() -> None:
    rows = tomllib.loads((ROOT / "tools/errors.toml").read_text())
    assert first_cells(tables.errors()) == list(rows)


def test_every_metric_is_listed_and_the_limits_are_those_of_the_page() -> None:
    listed = {name.removesuffix("_total") for name in first_cells(tables.metrics())}
    assert listed == {PREFIX + kind.name for kind in METRICS}
    page = (DOCS / "reference/metrics.md").read_text()
    assert f"the first {STREAMS} streams and {CONSUMERS} consumers" in page


def test_every_table_of_a_hub_is_listed_with_its_columns() -> None:
    made = tables.plgd_tables()
    for name, table in TABLES.items():
        section = made.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
        assert first_cells(section) == [each.name for each in table.columns]


def test_every_cheat_sheet_is_there() -> None:
    assert re.findall(r"^## (.+)$", tables.cheat_sheets(), re.MULTILINE) == list(CHEATS)


def test_every_command_is_on_a_page() -> None:
    named = [name for page in commands.PAGES for name in blocks_of(commands.blocks(page))]
    paths = [path for path, _ in commands.leaves()]
    assert sorted(named) == sorted({path.split()[0] for path in paths})
    assert re.findall(r"^\| \[`pelton ([^`]*)`\]", commands.table(), re.MULTILINE) == paths


def blocks_of(text: str) -> list[str]:
    """The commands that mkdocs-click puts there."""
    return re.findall(r"^    :command: (.+)$", text, re.MULTILINE)


def test_every_public_name_is_on_a_page() -> None:
    made = re.findall(r"^::: (\S+)$", "\n".join(map(client.blocks, client.PAGES)), re.MULTILINE)
    public = [
        f"{module.__name__}.{name}"
        for module in (pelton, pelton.sync, pelton.testing, pelton.embedded)
        for name in vars(module)["__all__"]
        if name != "sync"
    ]
    assert {"pelton.connect", "pelton.sync.connect", "pelton.sync.ColumnReader"} <= set(public)
    assert sorted(made) == sorted(public)


def test_every_public_call_is_explained() -> None:
    bare = [
        f"{each.path}.{name}"
        for each in client.names()
        if isinstance(each.value, type)
        for name, member in client.members_of(each.value).items()
        if not (member.__doc__ or "").strip()
    ]
    bare += [
        each.path
        for each in client.names()
        if callable(each.value) and not (each.value.__doc__ or "").strip()
    ]
    assert not bare


def test_a_call_of_a_base_class_has_the_types_of_its_class() -> None:
    returns = {
        each.name: client.typed(
            inspect.signature(client.members_of(each.value)["next"]).return_annotation, each.name
        )
        for each in client.names()
        if each.name.endswith("Watch")
    }
    assert returns == {"KeyWatch": "KvEntry[V] | None", "ObjectWatch": "ObjectInfo | None"}


def test_a_class_is_on_the_page_of_what_makes_it() -> None:
    pages = {each.name: client.page_of(each) for each in client.names()}
    assert (pages["KeyWatch"], pages["ObjectWatch"]) == ("key-value", "object-store")
    assert {pages[name] for name in ("Consumer", "ConsumerMessages", "PushMessages")} == {
        "consumers"
    }


def test_a_docstring_becomes_markdown() -> None:
    text = client.prose(
        "Do it.\n\nname, other: the names\n    of both.\nsize: its size.\n\n::\n\n    x = 1"
    )
    assert text == (
        "Do it.\n\n- `name`, `other`: the names\n    of both.\n- `size`: its size.\n\n"
        "```python\nx = 1\n```"
    )


# -- pages on a forge and on the site -------------------------------------------------------------


def test_every_mark_of_a_page_names_a_reference_and_each_is_used() -> None:
    named = [
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(
            r"^<!-- made for the site: (.+) -->$", page.read_text(), re.MULTILINE
        )
    ]
    assert sorted(named) == sorted(hooks.MADE)


@pytest.mark.parametrize(
    "page",
    [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in hooks.MORE)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_reads_the_same_on_a_forge_and_on_the_site(page: Path) -> None:
    """Python's Markdown wants an empty line before a heading, a table and a list, and knows no alerts."""
    text = re.sub(
        r"^ *```.*?^ *```$|^<!--.*?-->$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    found = []
    for block in re.split(r"\n\s*\n", text):
        first, *rest = block.strip().split("\n")
        for kind in (r"#+ ", r"\|", r"(?:- |\d+\. )"):
            other = kind == "#+ " or not re.match(kind, first)
            found += [line for line in rest if other and re.match(kind, line)]
        found += [
            line
            for line in (first, *rest)
            if re.match(r"> \[!| +(- |\d+\. )|(!!!|\?\?\?|===|:::) ", line)
        ]
    assert not found


@pytest.mark.parametrize(
    ("page", "link", "source", "there"),
    [
        ("docs/howto/publish.md", "../../README.md#speed", "", "[x](../overview.md#speed)"),
        ("README.md", "docs/howto/publish.md", "", "[x](howto/publish.md)"),
        ("docs/README.md", "../deploy/README.md", "", "[x](deploy.md)"),
        ("docs/README.md", "decisions/", "", "[x](decisions/README.md)"),
        ("docs/reference/errors.md", "../../tools/errors.toml", "", "x"),
        (
            "docs/reference/errors.md",
            "../../tools/errors.toml",
            "https://f/b/",
            "[x](https://f/b/tools/errors.toml)",
        ),
        ("docs/README.md", "nowhere.md", "", "[x](nowhere.md)"),
        ("docs/README.md", "#speed", "", "[x](#speed)"),
        ("docs/README.md", "https://nats.io/a.md", "", "[x](https://nats.io/a.md)"),
    ],
)
def test_a_link_leads_to_where_the_site_has_the_file(
    page: str, link: str, source: str, there: str
) -> None:
    config = MkDocsConfig()
    config.load_dict({"extra": {"source": source}})
    found = hooks.LINK.fullmatch(f"[x]({link})")
    assert found is not None
    assert hooks.led(found, ROOT / page, config) == there
