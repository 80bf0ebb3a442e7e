"""A message in doubt after a failed fsync is not confirmed to clients, also not by the next server."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House


def publish(house: House, name: str) -> Any:
    """Return the PubAck; None: there is none yet."""
    block = f"NATS/1.0\r\nNats-Msg-Id: {name}\r\n\r\n".encode()
    answers = house.request("S", name.encode(), block)
    return json.loads(answers[0][1]) if answers else None


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("trouble", ["full", "sync"])
def test_a_duplicate_of_what_may_be_lost_is_refused(trouble: str, restart: bool) -> None:
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(allow_atomic=True)
    assert publish(house, "a")["seq"] == 1
    disk.fail("sync", errno.EIO, "*/log/*", times=None)
    assert publish(house, "b") is None or not restart
    if restart:
        disk.kill()  # the written record is still in the page cache
        if trouble == "full":
            disk.room = disk.used()
        else:
            disk.fail("sync", errno.EIO, "*/log/*", times=None)
        house = house.crash()
        assert house.ok("STREAM.INFO.S")["state"]["last_seq"] == 2  # and the next server reads it
    answer = publish(house, "b")
    assert answer is not None
    assert answer["error"]["err_code"] == 10077
    block = (
        "NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\n"
        "Nats-Batch-Commit: 1\r\nNats-Msg-Id: b\r\n\r\n"
    )
    answer = json.loads(house.request("S", b"b", block.encode())[0][1])
    assert answer["error"]["err_code"] == 10077  # a batch gets the same refusal
    disk.heal()
    disk.room = None
    house.pass_time(6 * SECOND)
    assert publish(house, "b") == {"stream": "S", "seq": 2, "duplicate": True}
    assert publish(house, "a") == {"stream": "S", "seq": 1, "duplicate": True}
    disk.crash()
    assert house.crash().ok("STREAM.INFO.S")["state"]["messages"] == 2
