"""Mirrors and sources within a server, as a client sees them."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.engine.base.hashes import stream_identity
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def stored(house: House, stream: str) -> list[tuple[int, int, str, bytes, bytes]]:
    """Return all messages of a stream: sequence, time, subject, headers, payload."""
    log = house.engine.accounts["$G"].streams[stream].core.log
    found = [log.get(seq) for seq in range(log.first_seq, log.last_seq + 1)]
    return [tuple(message) for message in found if message is not None]


def state(house: House, stream: str) -> tuple[int, int, int]:
    """Return first and last sequence, and the number of messages."""
    found = house.ok(f"STREAM.INFO.{stream}")["state"]
    return found["first_seq"], found["last_seq"], found["messages"]


def source_header(message: tuple[int, int, str, bytes, bytes]) -> str:
    for line in message[3].decode().split("\r\n"):
        if line.startswith("Nats-Stream-Source: "):
            return line.partition(": ")[2]
    return ""


def test_a_mirror_is_a_copy(house: House) -> None:
    house.stream("O", subjects=["o.>"])
    for n in range(5):
        house.publish(f"o.{n}", b"%d" % n)
    house.ok("STREAM.MSG.DELETE.O", {"seq": 2})
    house.stream("M", mirror={"name": "O"})
    house.server.reactor.settle()
    assert stored(house, "M") == stored(house, "O")
    house.publish("o.9", b"later", b"NATS/1.0\r\nNats-Expected-Last-Sequence: 5\r\nA: b\r\n\r\n")
    house.server.reactor.settle()
    assert stored(house, "M")[-1][3] == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert state(house, "M") == (1, 6, 5)
    mirror = house.ok("STREAM.INFO.M")["mirror"]
    assert mirror["name"] == "O"
    assert mirror["lag"] == 0
    assert 0 <= mirror["active"] < SECOND


def test_a_mirror_of_an_empty_stream_begins_behind_it(house: House) -> None:
    house.stream("O", subjects=["o"])
    for _ in range(3):
        house.publish("o")
    house.ok("STREAM.PURGE.O")
    house.stream("M", mirror={"name": "O"})
    house.pass_time(SECOND)
    assert state(house, "M") == state(house, "O") == (4, 3, 0)


@pytest.mark.parametrize("follower", [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}])
def test_copies_are_not_of_the_batch(house: House, follower: dict[str, Any]) -> None:
    """The origin has applied the headers of the batch."""
    house.stream("O", subjects=["o"], allow_atomic=True)
    house.stream("F", **follower)
    lines = "Nats-Batch-Id: b\r\nNats-Batch-Sequence"
    ends = ("1\r\nMy: own", "2\r\nNats-Batch-Commit: 1")
    for end in ends:
        house.request("o", b"x", f"NATS/1.0\r\n{lines}: {end}\r\n\r\n".encode())
    house.pass_time(SECOND)
    assert b"Nats-Batch" in stored(house, "O")[0][3]
    first, second = (message[3] for message in stored(house, "F"))
    assert b"My: own\r\n" in first
    assert b"Nats-Batch" not in first + second


def test_a_source_appends_and_says_where_from(house: House) -> None:
    house.stream("A", subjects=["a.>"])
    house.stream("B", subjects=["b.>"])
    house.publish("a.1")
    house.publish("b.1", b"x", b"NATS/1.0\r\nK: v\r\n\r\n")
    house.stream("S", sources=[{"name": "A"}, {"name": "B", "filter_subject": "b.*"}])
    house.server.reactor.settle()
    house.publish("a.2")
    house.server.reactor.settle()
    messages = stored(house, "S")
    assert [message[2] for message in messages] == ["a.1", "b.1", "a.2"]
    a, b = (stream_identity(house.account.streams[name].created_ns) for name in "AB")
    assert [source_header(message) for message in messages] == [
        f"A 1 > > a.1 {a}",
        f"B 1 b.* > b.1 {b}",
        f"A 2 > > a.2 {a}",
    ]
    assert [each["seq"] for each in house.ok("STREAM.INFO.S")["sources"]] == [2, 1]
    assert messages[1][3].startswith(b"NATS/1.0\r\nK: v\r\nNats-Stream-Source: ")


def test_an_origin_may_come_later_and_go_and_come_again(house: House) -> None:
    house.stream("M", mirror={"name": "O"})
    house.stream("S", sources=[{"name": "O"}])
    info = house.ok("STREAM.INFO.M")["mirror"]
    assert info["active"] == -1
    assert info["error"]["err_code"] == 10059
    house.stream("O", subjects=["o"])
    house.publish("o", b"1")
    house.publish("o", b"2")
    house.server.reactor.settle()
    assert [message[4] for message in stored(house, "M")] == [b"1", b"2"]
    house.ok("STREAM.DELETE.O")
    assert house.ok("STREAM.INFO.M")["mirror"]["error"]["err_code"] == 10059
    house.pass_time(SECOND)
    house.stream("O", subjects=["o"])
    for payload in (b"3", b"4", b"5"):
        house.publish("o", payload)
    house.server.reactor.settle()
    # a mirror has the messages above its last sequence; a source begins again
    assert [message[4] for message in stored(house, "M")] == [b"1", b"2", b"5"]
    assert [message[4] for message in stored(house, "S")] == [b"1", b"2", b"3", b"4", b"5"]
    after = house.restart()
    after.server.reactor.settle()
    assert [message[4] for message in stored(after, "S")] == [b"1", b"2", b"3", b"4", b"5"]


def test_an_origin_that_is_created_again_in_one_turn_is_another_one(house: House) -> None:
    house.stream("S", sources=[{"name": "O"}])
    for payload in (b"1", b"2"):
        house.stream("O", subjects=["o"])
        house.publish("o", payload)
        house.server.reactor.settle()
        house.ok("STREAM.DELETE.O")
    assert [message[4] for message in stored(house, "S")] == [b"1", b"2"]


def test_an_origin_that_was_created_again_is_noticed_without_the_file(house: House) -> None:
    """As after a restore: the newest message of a source names the stream that it came from."""
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[{"name": "O"}])
    house.publish("o", b"1")
    house.pass_time(SECOND)
    house.ok("STREAM.DELETE.O")
    files = house.account.streams["S"].files
    assert files is not None
    house.engine.close()
    (Path(files.folder) / "sources.json").unlink()
    house = House(house.folder, house.server.clock.now() + SECOND)
    house.stream("O", subjects=["o"])
    house.publish("o", b"2")
    house.server.reactor.settle()
    assert [message[4] for message in stored(house, "S")] == [b"1", b"2"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_new_origin_waits_until_the_disk_takes_its_name(error: int) -> None:
    """Neither the request that creates the origin nor the start of a server fails by that."""
    disk = SimDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[{"name": "O"}])
    house.publish("o", b"before")
    house.pass_time(10 * SECOND)
    house.ok("STREAM.DELETE.O")
    disk.fail("write", error, "*/streams/S/*", times=None)
    house.stream("O", subjects=["o"])
    house.publish("o", b"after")
    house.pass_time(SECOND)
    assert [message[4] for message in stored(house, "S")] == [b"before"]
    for _ in range(2):
        disk.kill()
        house = house.crash()
        assert {"O", "S"} <= house.account.streams.keys()
    disk.heal()
    house.pass_time(10 * SECOND)
    assert [message[4] for message in stored(house, "S")] == [b"before", b"after"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_source_goes_on_where_it_was_after_its_messages_are_gone(
    house: House, clean: bool
) -> None:
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[{"name": "O"}])
    for n in range(3):
        house.publish("o", b"%d" % n)
    house.server.reactor.settle()
    house.ok("STREAM.PURGE.S")
    house.server.reactor.settle()
    after = house.restart() if clean else house.crash()
    after.publish("o", b"later")
    after.server.reactor.settle()
    assert [message[4] for message in stored(after, "S")] == [b"later"]
    after.ok("STREAM.MSG.DELETE.S", {"seq": 4})
    last = after.crash()
    last.server.reactor.settle()
    assert stored(last, "S") == []


def test_a_promoted_mirror_is_an_ordinary_stream(house: House) -> None:
    house.stream("O", subjects=["o"])
    house.publish("o")
    config = house.stream("M", mirror={"name": "O"})["config"]
    house.server.reactor.settle()
    assert house.error("STREAM.UPDATE.M", {**config, "mirror": {"name": "P"}})[0] == 10055
    del config["mirror"]
    info = house.ok("STREAM.UPDATE.M", {**config, "subjects": ["m"]})
    assert "mirror" not in info
    house.publish("o")
    house.server.reactor.settle()
    assert house.publish("m")["seq"] == 2


def test_a_refused_message_waits_for_room(house: House) -> None:
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[{"name": "O"}], max_msgs=2, discard="new")
    for n in range(4):
        house.publish("o", b"%d" % n)
    house.server.reactor.settle()
    assert state(house, "S") == (1, 2, 2)
    info = house.ok("STREAM.INFO.S")["sources"][0]
    assert info["lag"] == 2
    assert info["error"]["description"] == "maximum messages exceeded"
    house.ok("STREAM.MSG.DELETE.S", {"seq": 1})
    house.pass_time(SECOND)
    assert [message[4] for message in stored(house, "S")] == [b"1", b"2"]


def test_transforms_and_filters(house: House) -> None:
    house.stream("O", subjects=["o.>"])
    for subject in ("o.a.1", "o.b.2", "o.c.3"):
        house.publish(subject)
    transforms = [{"src": "o.a.*", "dest": "x.$1"}, {"src": "o.b.*", "dest": ""}]
    house.stream("M", mirror={"name": "O", "filter_subject": "o.c.>"})
    house.stream("S", sources=[{"name": "O", "subject_transforms": transforms}])
    house.server.reactor.settle()
    assert [(message[0], message[2]) for message in stored(house, "M")] == [(3, "o.c.3")]
    messages = stored(house, "S")
    assert [message[2] for message in messages] == ["x.1", "o.b.2"]
    assert source_header(messages[0]).startswith("O 1 o.a.*\fo.b.* x.$1\f> o.a.1 ")


def test_start_sequence_and_time(house: House) -> None:
    house.stream("O", subjects=["o"])
    for n in range(4):
        house.publish("o", b"%d" % n)
        house.pass_time(SECOND)
    at = house.ok("STREAM.MSG.GET.O", {"seq": 3})["message"]["time"]
    house.stream("M", mirror={"name": "O", "opt_start_seq": 3})
    house.stream("T", mirror={"name": "O", "opt_start_time": at})
    house.stream("S", sources=[{"name": "O", "opt_start_seq": 4}])
    house.server.reactor.settle()
    assert state(house, "M") == (3, 4, 2)
    assert state(house, "T") == (3, 4, 2)
    assert [message[4] for message in stored(house, "S")] == [b"3"]


def test_sources_can_be_added_and_taken_away(house: House) -> None:
    for name in ("A", "B"):
        house.stream(name, subjects=[name.lower()])
        house.publish(name.lower(), name.encode())
    config = house.stream("S", sources=[{"name": "A"}])["config"]
    house.server.reactor.settle()
    house.ok("STREAM.UPDATE.S", {**config, "sources": [{"name": "B"}]})
    house.server.reactor.settle()
    house.publish("a", b"not taken yet")
    house.ok("STREAM.UPDATE.S", {**config, "sources": [{"name": "B"}, {"name": "A"}]})
    house.server.reactor.settle()
    assert [message[4] for message in stored(house, "S")] == [b"A", b"B", b"not taken yet"]
    names = [source["name"] for source in house.ok("STREAM.INFO.S")["sources"]]
    assert names == ["B", "A"]


def test_a_message_that_is_there_already_is_passed_over(house: House) -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    for name in ("A", "B"):
        house.stream(name, subjects=[name.lower()])
        house.publish(name.lower(), name.encode(), block)
    window: Any = {"duplicate_window": 60 * SECOND}
    house.stream("S", sources=[{"name": "A"}, {"name": "B"}], **window)
    house.stream("T", sources=[{"name": "A"}, {"name": "B"}])
    house.publish("b", b"C")
    house.server.reactor.settle()
    assert [message[4] for message in stored(house, "S")] == [b"A", b"B"[:0] or b"C"]
    assert sorted(message[4] for message in stored(house, "T")) == [b"A", b"B", b"C"]


def test_a_mirror_answers_direct_gets_of_its_origin(house: House) -> None:
    house.stream("O", subjects=["o"], allow_direct=True)
    house.publish("o", b"1")
    config = house.stream("M", mirror={"name": "O"})["config"]
    assert config["mirror_direct"]
    house.server.reactor.settle()
    house.ok("STREAM.DELETE.O")
    headers, payload = house.request("$JS.API.DIRECT.GET.O", {"seq": 1})[0]
    assert payload == b"1"
    assert b"Nats-Stream: M\r\n" in headers
    for name, subject in (("", "M"), ("M", "O")):
        if name:
            house.ok(f"STREAM.DELETE.{name}")
        headers, _ = house.request(f"$JS.API.DIRECT.GET.{subject}", {"seq": 1})[0]
        assert headers.startswith(b"NATS/1.0 503")


def test_counters_are_gathered(house: House) -> None:
    for name in ("A", "B"):
        house.stream(name, subjects=[f"{name}.*"], allow_msg_counter=True)
    transforms = {name: [{"src": f"{name}.*", "dest": "all.$1"}] for name in ("A", "B")}
    sources = [{"name": name, "subject_transforms": transforms[name]} for name in ("A", "B")]
    house.stream("S", sources=sources, allow_msg_counter=True)
    for subject, number in (("A.x", 3), ("B.x", 4), ("A.x", 10), ("B.y", 1)):
        house.publish(subject, b"", b"NATS/1.0\r\nNats-Incr: %d\r\n\r\n" % number)
        house.server.reactor.settle()
    found = [(message[2], message[4]) for message in stored(house, "S")]
    assert found == [
        ("all.x", b'{"val":"3"}'),
        ("all.x", b'{"val":"7"}'),
        ("all.x", b'{"val":"17"}'),
        ("all.y", b'{"val":"1"}'),
    ]
    assert b'Nats-Counter-Sources: {"A":{"A.x":"13"},"B":{"B.x":"4"}}' in stored(house, "S")[2][3]


def test_what_the_origin_allows_is_stored_as_it_is(house: House) -> None:
    house.stream("O", subjects=["o.*"], allow_rollup_hdrs=True, allow_msg_ttl=True)
    house.stream("S", sources=[{"name": "O"}], republish={"src": ">", "dest": "again.>"})
    house.stream("M", mirror={"name": "O"}, allow_msg_ttl=True)
    house.stream("R", sources=[{"name": "O"}], allow_rollup_hdrs=True)
    house.publish("o.a", b"1")
    house.server.reactor.settle()
    listener = house.server.client()
    listener.send("SUB again.> 9\r\n")
    house.publish("o.a", b"2", b"NATS/1.0\r\nNats-Rollup: sub\r\nNats-TTL: 5\r\n\r\n")
    house.server.reactor.settle()
    events: list[Any] = listener.events()
    assert [event[1] for event in events] == ["again.o.a"]
    assert len(stored(house, "S")) == 2
    assert [message[4] for message in stored(house, "R")] == [b"2"]
    assert b"Nats-TTL: 5\r\n" in stored(house, "S")[1][3]
    house.pass_time(10 * SECOND)
    assert [message[4] for message in stored(house, "M")] == [b"1"]
    assert len(stored(house, "S")) == 2


def test_a_restored_stream_goes_on_with_its_sources(house: House) -> None:
    house.stream("O", subjects=["o"])
    house.stream("S", sources=[{"name": "O"}])
    for n in range(3):
        house.publish("o", b"%d" % n)
    house.server.reactor.settle()
    after = house.restart()
    # restored messages have no header of this server, and there is no file of positions
    kept = stored(after, "S")
    after.engine.close()
    log = house.folder / "jetstream" / "$G" / "streams" / "S"
    (log / "sources.json").unlink()
    shutil.rmtree(log / "log")
    fresh = open_log(str(log / "log"), Disk())
    for _, time_ns, subject, headers, payload in kept:
        fresh.add(time_ns, subject, payload, headers)
    maintenance.close(fresh)
    last = after.crash()
    last.publish("o", b"3")
    last.server.reactor.settle()
    assert [message[4] for message in stored(last, "S")] == [b"0", b"1", b"2", b"3"]
