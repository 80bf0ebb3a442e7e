"""A message that was never acknowledged and may not be on the disk: a failed fsync, then a kill, and
the next server finds a disk that still fails. Nothing may depend on the message: a power cut takes
it, and its sequence is given to another one.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, START_NS, House

LOG = "store/jetstream/$G/streams/S/log"
COPY_LOG = "store/jetstream/$G/streams/C/log"
COPIES = {"mirror": {"mirror": {"name": "S"}}, "source": {"sources": [{"name": "S"}]}}


class Story:
    """Lives of a server whose stream S is copied by the stream C."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.lives = 0

    def start(self) -> House:
        self.disk.handles.clear()
        self.lives += 1
        now_ns = START_NS + self.lives * 100 * SECOND
        return House(Path("store"), now_ns, PyDisk(self.disk), segment_bytes=4096)

    def first_life(self, copy: str, *, known: bool) -> None:
        """Three messages are acknowledged, and the sync of the fourth one fails. `known`: the server
        can say so to the next one.
        """
        house = self.start()
        house.stream("S", subjects=["S"])
        for number in range(3):
            assert house.publish("S", b"%d" % number)["seq"] == number + 1
        house.stream("C", **COPIES[copy])
        house.consumer("c", ack_policy="explicit")
        house.pass_time(SECOND)
        assert contents(house, "C") == [b"0", b"1", b"2"]
        self.fail(known=known)
        assert house.request("S", b"never acknowledged") == []
        house.pass_time(SECOND)
        assert self.disk.exists(f"{LOG}/unsure") is known
        self.disk.kill()

    def fail(self, log: str = LOG, *, known: bool = True) -> None:
        """Each sync of a log fails from now on."""
        self.disk.fail("sync", errno.EIO, f"{log}/*", times=None)
        self.disk.fail("open", errno.EIO, f"{log}/probe.tmp", times=None)
        if not known:
            self.disk.fail("open", errno.EIO, f"{log}/unsure", times=None)


def contents(house: House, name: str) -> list[bytes]:
    log = house.account.streams[name].core.log
    found = [log.get(seq) for seq in range(1, log.last_seq + 1)]
    return [message.payload for message in found if message is not None]


@pytest.mark.parametrize("known", [True, False], ids=["unsure", "unnoticed"])
@pytest.mark.parametrize("copy", COPIES)
def test_copies_wait_for_the_disk(copy: str, known: bool) -> None:
    story = Story()
    story.first_life(copy, known=known)
    for _ in range(2):  # a second server does not know less than the first
        story.fail(known=known)
        house = story.start()
        house.pass_time(10 * SECOND, SECOND // 4)
        assert contents(house, "S") == [b"0", b"1", b"2", b"never acknowledged"]
        assert contents(house, "C") == [b"0", b"1", b"2"]
        story.disk.heal()
    story.disk.crash()
    house = story.start()
    assert house.publish("S", b"3")["seq"] == 4
    house.pass_time(2 * SECOND)
    assert contents(house, "C") == contents(house, "S") == [b"0", b"1", b"2", b"3"]
    assert not house.server.errors


@pytest.mark.parametrize("copy", COPIES)
def test_copies_go_on_when_the_disk_works_again(copy: str) -> None:
    for known in (True, False):
        story = Story()
        story.first_life(copy, known=known)
        story.fail(known=known)
        house = story.start()
        house.pass_time(2 * SECOND, SECOND // 4)
        story.disk.heal()
        house.pass_time(10 * SECOND, SECOND // 4)
        expected = [b"0", b"1", b"2", b"never acknowledged"]
        assert contents(house, "C") == contents(house, "S") == expected
        assert not story.disk.exists(f"{LOG}/unsure")
        story.disk.crash()
        house = story.start()
        assert contents(house, "C") == contents(house, "S") == expected


@pytest.mark.parametrize("known", [True, False], ids=["unsure", "unnoticed"])
def test_a_work_queue_keeps_a_message_until_its_copy_is_on_the_disk(known: bool) -> None:
    """The copy of the second message is in doubt: the queue must not remove it."""
    story = Story()
    house = story.start()
    house.stream("S", subjects=["S"], retention="workqueue")
    house.stream("C", **COPIES["source"])
    house.pass_time(SECOND)
    assert house.publish("S", b"0")["seq"] == 1
    house.pass_time(20 * SECOND, SECOND // 4)
    assert (contents(house, "S"), contents(house, "C")) == ([], [b"0"])
    story.fail(COPY_LOG, known=known)
    assert house.publish("S", b"1")["seq"] == 2
    house.pass_time(2 * SECOND, SECOND // 4)
    assert (contents(house, "S"), contents(house, "C")) == ([b"1"], [b"0", b"1"])
    story.disk.kill()
    story.fail(COPY_LOG, known=known)
    house = story.start()
    house.pass_time(60 * SECOND, SECOND // 4)
    assert (contents(house, "S"), contents(house, "C")) == ([b"1"], [b"0", b"1"])
    assert house.publish("S", b"2")["seq"] == 3  # with its sync S is on the disk as it is
    story.disk.crash()
    house = story.start()
    house.pass_time(60 * SECOND, SECOND // 4)
    assert (contents(house, "S"), contents(house, "C")) == ([], [b"0", b"1", b"2"])


def test_readers_wait_for_the_disk_when_the_former_server_could_say_what_is_safe() -> None:
    story = Story()
    story.first_life("mirror", known=True)
    for _ in range(2):
        story.fail()
        house = story.start()
        assert [event[5] for event in house.pull(10)] == [b"0", b"1", b"2"]
        assert house.ok("STREAM.MSG.GET.S", {"seq": 3})["message"]["seq"] == 3
        assert house.request("$JS.API.STREAM.MSG.GET.S", {"seq": 4}) == []
        story.disk.kill()
    house = story.start()  # the disk works: the message is there for good
    assert [event[5] for event in house.pull(10)][-1] == b"never acknowledged"
    assert house.ok("STREAM.MSG.GET.S", {"seq": 4})["message"]["seq"] == 4
    (answer,) = house.request("S", b"4")
    assert json.loads(answer[1])["seq"] == 5


def test_a_segment_in_doubt_stays_so_when_another_one_gets_into_doubt() -> None:
    """The second server learns of a failed sync of its own before it has rewritten the segment that
    the first one could not sync.
    """
    story = Story()
    house = story.start()
    house.stream("S", subjects=["S"])
    for number in range(6):  # two segments
        assert house.publish("S", b"%d" % number + bytes(900))["seq"] == number + 1
    story.disk.fail("sync", errno.EIO, f"{LOG}/{1:020}.seg", times=None)
    story.disk.fail("open", errno.EIO, f"{LOG}/probe.tmp", times=None)
    house = story.start()  # finds out that the sync of the first segment fails
    first = {int(line) for line in story.disk.file(f"{LOG}/unsure").data.split() if line.isdigit()}
    assert 1 in first
    story.disk.kill()
    story.disk.fail("sync", errno.EIO, f"{LOG}/{first_of_last(story.disk)}", times=1)
    story.disk.fail("open", errno.EIO, f"{LOG}/probe.tmp", times=None)
    story.start()
    then = {int(line) for line in story.disk.file(f"{LOG}/unsure").data.split() if line.isdigit()}
    assert 1 in then


def test_segments_without_a_doubt_are_not_rewritten() -> None:
    story = Story()
    house = story.start()
    house.stream("S", subjects=["S"])
    for number in range(12):  # three segments and more
        house.publish("S", b"%d" % number + bytes(900))
    names = sorted(path for path in story.disk.names if path.endswith(".seg"))
    before = [story.disk.file(path) for path in names]
    story.disk.fail("sync", errno.EIO, names[0], times=1)
    house = story.start()
    after = [story.disk.file(path) for path in names]
    assert [one is other for one, other in zip(before, after, strict=True)] == [
        False,
        *[True] * (len(names) - 2),
        False,  # takes the next messages
    ]
    assert len(contents(house, "S")) == 12


def first_of_last(disk: SimDisk) -> str:
    return max(path for path in disk.names if path.endswith(".seg")).rpartition("/")[2]
