"""The page of differences and the comparison agree on what is left different."""

import re
from pathlib import Path

from tests.compat.pair import LISTED, PROGRESS, UNCOMMON
from tests.compat.waivers import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


def listed() -> list[str]:
    """The keys of the page's first table, each with a reason."""
    table = PAGE.read_text().partition("## Compared, and left different")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    for row in rows:
        assert all(cell.strip() for cell in row[1:5]), f"a row is not filled in: {row}"
    return [re.sub("[` ]", "", row[1]) for row in rows]


def test_the_page_has_each_difference_once() -> None:
    assert sorted(listed()) == sorted(KEYS)


def test_nothing_more_is_made_equal_before_it_is_compared() -> None:
    assert {
        "_nats.ver",
        "_nats.level",
        "leader",
        "level",
        "errors",
        "pause_remaining",
    } == UNCOMMON
    assert {"lag", "active", "error"} == PROGRESS
    assert LISTED == "change to limits violates consumers: "
