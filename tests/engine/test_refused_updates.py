"""An update that the disk refuses may have replaced one of the two files of the configuration. No later
answer confirms the configuration before as long as the next server would find the refused one.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

STREAM: dict[str, Any] = {"name": "S", "subjects": ["s"]}
CONSUMER: dict[str, Any] = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": SECOND}


def of_consumer(config: dict[str, Any], action: str) -> tuple[str, dict[str, Any]]:
    return "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config, "action": action}


CONFIRMING: dict[str, tuple[str, dict[str, Any]]] = {
    "stream create": ("STREAM.CREATE.S", STREAM),
    "stream update": ("STREAM.UPDATE.S", STREAM),
    "consumer create": of_consumer(CONSUMER, "create"),
    "consumer update": of_consumer(CONSUMER, "update"),
    "consumer either": of_consumer(CONSUMER, ""),
}


@pytest.mark.parametrize("lasting", [True, False], ids=["disk stays bad", "disk works again"])
@pytest.mark.parametrize("refused_at", range(3), ids=["first file", "copy", "folder"])
@pytest.mark.parametrize("way", CONFIRMING)
def test_what_is_confirmed_after_a_refused_update(
    way: str, refused_at: int, *, lasting: bool
) -> None:
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(**STREAM)
    house.ok(*of_consumer(CONSUMER, "create"))
    other = {"description": "refused"}
    refused = (
        ("STREAM.UPDATE.S", STREAM | other)
        if way.startswith("stream")
        else of_consumer(CONSUMER | other, "update")
    )
    verb, after = ("rename", refused_at) if refused_at < 2 else ("sync_dir", 0)
    disk.fail(verb, errno.EIO, "*", after=after, times=None)
    assert "error" in house.api(*refused)
    if not lasting:
        disk.heal()
    answer = house.api(*CONFIRMING[way])
    assert ("error" in answer) == lasting
    disk.heal()
    disk.kill()
    house = House(Path("store"), house.server.clock.now(), PyDisk(disk))
    info = house.ok("STREAM.INFO.S" if way.startswith("stream") else "CONSUMER.INFO.S.c")
    if "error" not in answer:
        assert "description" not in info["config"]


@pytest.mark.parametrize("lasting", [True, False], ids=["disk stays bad", "disk works again"])
@pytest.mark.parametrize("refused_at", range(3), ids=["copy", "file", "folder"])
@pytest.mark.parametrize("way", ["stream update", "consumer update"])
def test_a_kill_does_not_bring_a_refused_update_into_effect(
    way: str, refused_at: int, *, lasting: bool
) -> None:
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(**STREAM)
    house.ok(*of_consumer(CONSUMER, "create"))
    call, body = CONFIRMING[way]
    other = {"description": "refused"}
    refused = body | other if way == "stream update" else of_consumer(CONSUMER | other, "update")[1]
    verb, after = ("rename", refused_at) if refused_at < 2 else ("sync_dir", 0)
    disk.fail(verb, errno.EIO, "*", after=after, times=None if lasting else 1)
    assert "error" in house.api(call, refused)
    disk.heal()
    disk.kill()
    house = House(Path("store"), house.server.clock.now(), PyDisk(disk))
    info = house.ok("STREAM.INFO.S" if way == "stream update" else "CONSUMER.INFO.S.c")
    assert "description" not in info["config"]
