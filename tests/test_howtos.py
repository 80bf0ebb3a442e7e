"""What the pages tell a reader to type works as it is typed, block after block."""

import re
from pathlib import Path

import pytest

from tests.documents import ROOT, Reader, blocks_of
from tests.peers import available_servers, command_of

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]

# What these show of the client is the same with any server.
CLIENT_PAGES = (
    "connect",
    "consume",
    "consumer-groups",
    "key-value",
    "manage-streams-from-python",
    "object-store",
    "publish",
    "schedules-and-counters",
    "services",
    "trace-with-opentelemetry",
    "use-the-client",
)


SPARK = re.compile(r"spark|pelton (run|pipeline (run|test|backfill)|plgd (run|backfill))\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """Pages with Spark need a JVM."""
    spark = any(block.runs and SPARK.search(block.text) for block in blocks_of(page))
    return [pytest.mark.slow, pytest.mark.timeout(600)] if spark else []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=marks(page), id=name(page))
        for page in PAGES
        if any(block.runs for block in blocks_of(page))
    ],
)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    reader = Reader(page, tmp_path)
    try:
        reader.read()
    finally:
        reader.close()


@pytest.mark.skipif("nats-server" not in available_servers(), reason="no nats-server here")
@pytest.mark.parametrize("page", CLIENT_PAGES)
def test_a_page_about_the_client_is_right_with_nats_server(page: str, tmp_path: Path) -> None:
    command = command_of("nats-server")
    assert command is not None
    reader = Reader(ROOT / "docs" / "howto" / f"{page}.md", tmp_path, server=" ".join(command))
    try:
        reader.read()
        assert "Starting nats-server" in reader._logs()
    finally:
        reader.close()


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=name
)
def test_commands_can_be_copied(page: Path) -> None:
    prompts = [
        f"{name(page)}:{block.line}"
        for block in blocks_of(page)
        if block.kind != "text" and re.search(r"^\$ ", block.text, re.MULTILINE)
    ]
    assert not prompts


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks_of(page):
        place = f"{name(page)}:{block.line}"
        assert all(len(reason.split()) > 1 for reason in block.notes.get("not run", [])), place
        # Commands stand in blocks that say so, or nobody runs them.
        if block.kind not in ("console", "python", "text"):
            assert not re.search(r"^(pelton|python|pip|make|curl) ", block.text, re.MULTILINE), (
                place
            )
