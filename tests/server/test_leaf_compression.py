"""S2 on leaf node connections between real servers, and what two modes come to."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from pelton.server.leaf.compression import agree
from tests.peers import free_port

from .leafs import linked, need, node, running
from .test_leaf_websocket import counted

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = [("pelton", "pelton"), ("pelton", "nats-server"), ("nats-server", "pelton")]
MODES = ["off", "accept", "s2_fast", "s2_better", "s2_best"]


@pytest.mark.parametrize("at_leaf_mode", ["accept", "s2_best", "off"])
@pytest.mark.parametrize("at_hub_mode", ["accept", "s2_fast"])
@pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
def test_both_say_the_same_and_messages_cross(
    kinds: tuple[str, str], at_hub_mode: str, at_leaf_mode: str, tmp_path: Path
) -> None:
    need(*kinds)
    ports = [free_port(), free_port()]
    hub = node(
        kinds[0],
        tmp_path,
        "hub",
        listener=f"compression: {at_hub_mode}",
        more=f"http: 127.0.0.1:{ports[0]}",
    )
    leaf = node(
        kinds[1],
        tmp_path,
        "leaf",
        hub=hub,
        remote=f"compression: {at_leaf_mode}",
        more=f"http: 127.0.0.1:{ports[1]}",
    )
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        counted(at_hub, at_leaf, "down")
        counted(at_leaf, at_hub, "up")
        wanted = [agree(at_hub_mode, at_leaf_mode), agree(at_leaf_mode, at_hub_mode)]
        assert [_shown(port) for port in ports] == wanted


def _shown(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/leafz", timeout=5) as answer:
        return str(json.load(answer)["leafs"][0]["compression"])


def test_what_two_modes_come_to() -> None:
    assert agree("accept", "accept") == "off"
    assert agree("accept", "s2_auto") == agree("s2_auto", "accept") == "s2_fast"
    assert agree("s2_best", "") == "not supported"
    for own in MODES:
        assert agree(own, "off") == agree("off", own) == "off"
    assert agree("s2_best", "s2_fast") == "s2_best"
    with pytest.raises(ValueError, match="zip"):
        agree("s2_fast", "zip")
