"""Ways that take turns beside two servers: none is left out, and none has one kind of server alone."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ways

SHELLS = ("asyncio", "blocking")
MODES = ("plain", "bytes")


class Item(SimpleNamespace):
    """A collected test, as far as turns look at it."""

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark)


def items_of(name: str, *, servers: tuple[str, ...] = ways.SERVERS) -> list[Any]:
    return [
        Item(
            nodeid=f"tests/some/test_it.py::{name}[{server}-{shell}-{mode}]",
            callspec=SimpleNamespace(params={"server": server, "shell": shell, "mode": mode}),
            marks=[],
        )
        for server, shell, mode in product(servers, SHELLS, MODES)
    ]


def left(items: list[Any]) -> list[dict[str, str]]:
    return [item.callspec.params for item in items if not item.marks]


@pytest.mark.parametrize("name", [f"test_{number}" for number in range(6)])
def test_each_way_has_one_server_and_each_value_both(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "FULL", False)
    items = items_of(name)
    ways.take_turns(items, "tests/some/")
    kept = left(items)
    assert Counter((each["shell"], each["mode"]) for each in kept) == Counter(
        product(SHELLS, MODES)
    )
    for key, values in (("shell", SHELLS), ("mode", MODES)):
        assert {(each["server"], each[key]) for each in kept} == set(product(ways.SERVERS, values))


def test_all_is_run_with_one_server_in_other_folders_and_at_full_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ways, "FULL", False)
    one, other = items_of("test_a", servers=("pelton",)), items_of("test_b")
    ways.take_turns(one, "tests/some/")
    ways.take_turns(other, "tests/another/")
    assert left(one + other) == [item.callspec.params for item in one + other]
    monkeypatch.setattr(ways, "FULL", True)
    ways.take_turns(other, "tests/some/")
    assert len(left(other)) == len(other)
