"""A consumer of an origin with interest retention holds the position of its follower. It begins where the
follower's disk is, not where its memory is: a power cut may take the copies in between.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from pelton.core.broker.reactor import HandedSync

FOLLOWERS: dict[str, dict[str, Any]] = {
    "mirror": {"mirror": {"name": "O"}},
    "source": {"sources": [{"name": "O"}]},
}


class Site:
    """A server whose syncs end when the test says so, for each stream."""

    def __init__(self) -> None:
        self.disk = SimDisk(random=Random(1))
        self.syncs: list[HandedSync] = []
        self.begin(1_700_000_000_000_000_000)

    def begin(self, now_ns: int) -> None:
        self.house = House(Path("store"), now_ns, PyDisk(self.disk, background=True))
        self.syncs.clear()
        self.house.server.reactor.on_sync = self.syncs.append

    def end_syncs(self, *streams: str) -> None:
        """End all syncs but those of the logs of these streams."""
        while self.house.server.reactor.turn() or self._ended(streams):
            pass

    def _ended(self, but: tuple[str, ...]) -> bool:
        ended = False
        for sync in list(self.syncs):
            path = self.disk.handles[sync.handle].path
            if not any(f"/{name}/log/" in path for name in but):
                self.syncs.remove(sync)
                self.disk.sync(sync.handle)
                sync.end(0)
                ended = True
        return ended

    def pass_time(self, seconds: int, *but: str) -> None:
        for _ in range(4 * seconds):
            self.house.pass_time(SECOND // 4)
            self.end_syncs(*but)

    def payloads(self) -> list[bytes]:
        log = self.house.account.streams["F"].core.log
        found = [log.get(seq) for seq in range(1, log.last_seq + 1)]
        return [message.payload for message in found if message is not None]


@pytest.mark.parametrize("seed", range(6))  # which writes the power cut takes
@pytest.mark.parametrize("way", FOLLOWERS)
def test_a_power_cut_takes_copies_that_are_not_synced(way: str, seed: int) -> None:
    site = Site()
    house = site.house
    house.stream("O", subjects=["o"])
    house.stream("F", **FOLLOWERS[way])
    house.consumer("needs", "O", durable_name="needs", ack_policy="explicit")
    site.pass_time(1)
    for number in range(3):
        house.send("o", b"%d" % number)
    site.pass_time(1, "F")
    assert site.payloads() == [b"0", b"1", b"2"]
    house.api("STREAM.UPDATE.O", {"name": "O", "subjects": ["o"], "retention": "interest"})
    site.pass_time(3, "F")
    site.disk.crash(Random(seed))
    site.begin(house.server.clock.now())
    site.pass_time(5)
    assert site.payloads() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("way", FOLLOWERS)
def test_the_copies_go_on_when_the_disk_has_them(way: str) -> None:
    site = Site()
    house = site.house
    house.stream("O", subjects=["o"])
    house.stream("F", **FOLLOWERS[way])
    house.consumer("needs", "O", durable_name="needs", ack_policy="explicit")
    house.send("o", b"0")
    site.pass_time(1, "F")
    house.api("STREAM.UPDATE.O", {"name": "O", "subjects": ["o"], "retention": "interest"})
    house.send("o", b"1")
    site.pass_time(1, "F")
    assert site.payloads() == [b"0"]
    site.pass_time(2)
    assert site.payloads() == [b"0", b"1"]
