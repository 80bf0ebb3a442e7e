"""Backups as a client sees them: what they hold, how they flow, how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.peer_files import unpack_state
from tests.engine.backups import Receiver, backup, files_of
from tests.engine.house import SECOND, House


@pytest.fixture
def full(house: House) -> House:
    """A stream of 40 messages of 2000 bytes that do not compress."""
    house.stream(subjects=["s.>"])
    for n in range(40):
        noise = bytes((n * 7919 + k * k * 31 + k // 7) % 251 for k in range(2000))
        house.publish(f"s.{n % 3}", noise)
    return house


def advisories(house: House) -> Any:
    client = house.server.client()
    client.send("SUB $JS.EVENT.ADVISORY.STREAM.> 1\r\n")
    return client


def told(client: Any) -> list[Any]:
    return [json.loads(event[5]) for event in client.events() if event[5]]


def test_what_is_in_it(full: House) -> None:
    full.consumer("one", durable_name="one", ack_policy="explicit")
    full.consumer("mem", ack_policy="explicit", mem_storage=True)
    full.pull(3, "one")
    answer, data = backup(full)
    assert answer["config"]["name"] == "S"
    assert "_nats.ver" not in answer["config"]["metadata"]
    assert (answer["state"]["messages"], answer["state"]["consumer_count"]) == (40, 2)
    files = files_of(data)
    assert list(files) == [
        "meta.inf",
        "meta.sum",
        "msgs/1.blk",
        "obs/one/meta.inf",
        "obs/one/meta.sum",
        "obs/one/o.dat",
    ]
    assert len(files["msgs/1.blk"]) == answer["state"]["bytes"]
    state = unpack_state(files["obs/one/o.dat"])
    assert (state.delivered_stream, sorted(state.pending)) == (3, [1, 2, 3])
    _, data = backup(full, no_consumers=True)
    assert list(files_of(data)) == ["meta.inf", "meta.sum", "msgs/1.blk"]


@pytest.mark.parametrize(("asked", "used"), [(1, 1024), (5000, 5000), (0, 128 * 1024)])
def test_chunks_are_full_but_the_last_and_have_replies(full: House, asked: int, used: int) -> None:
    receiver = Receiver(full)
    receiver.ask(chunk_size=asked)
    receiver.take()
    whole = receiver.chunks[:-1]
    assert all(len(payload) == used for payload, _ in whole)
    assert len(receiver.chunks[-1][0]) < used
    assert receiver.chunks[-1][1] == ""
    for index, (payload, reply) in enumerate(whole, 1):
        lead, _, tail = reply.partition(".S.")
        assert lead == "$JS.SNAPSHOT.ACK"
        assert tail.split(".")[1:] == [str(len(payload)), str(index)]
    assert receiver.end == (b"NATS/1.0 204\r\n\r\n" if whole else b"")


def test_no_more_is_on_its_way_than_the_window_allows(full: House) -> None:
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=2000, window_size=10_500)
    receiver.take()
    assert len(receiver.chunks) == 5
    assert receiver.end is None
    for _, reply in receiver.chunks[:2]:
        receiver.client.send(f"PUB {reply} 0\r\n\r\n")
    receiver.take()
    assert len(receiver.chunks) == 7


def test_without_acks_it_ends_after_five_seconds(full: House) -> None:
    events = advisories(full)
    receiver = Receiver(full, acks=2)
    receiver.ask(chunk_size=2000, window_size=4000)
    full.pass_time(4 * SECOND)
    assert receiver.take().end is None
    full.pass_time(3 * SECOND // 2)
    assert receiver.take().end is None  # what was acknowledged began the wait anew
    full.pass_time(5 * SECOND)
    assert receiver.take().end == b"NATS/1.0 408 No Flow Response\r\n\r\n"
    assert told(events)[-1]["error"] == "no flow response"
    backup(full)  # the way is free again


def test_who_is_gone_gets_no_more(full: House) -> None:
    events = advisories(full)
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=2000, window_size=4000)
    receiver.take()
    receiver.client.send("UNSUB 7\r\n")
    full.pass_time(SECOND)
    assert told(events)[-1]["error"] == "no interest"
    assert not full.engine.accounts["$G"].transfers


def test_interest_may_come_a_little_later(full: House) -> None:
    receiver = Receiver(full, listen=False)
    receiver.ask()
    full.pass_time(SECOND)
    receiver.listen()
    assert receiver.take().end == b""
    assert files_of(receiver.data)
    lonely = Receiver(full, listen=False)
    lonely.ask()
    full.pass_time(9 * SECOND)
    assert not full.engine.accounts["$G"].transfers


def test_one_at_a_time(full: House) -> None:
    first, second = Receiver(full, acks=0), Receiver(full)
    first.ask(chunk_size=1024, window_size=1024)
    answer = second.ask()
    assert answer["error"]["err_code"] == 10064
    assert answer["error"]["description"] == "snapshot failed: snapshot in progress"


def test_a_stream_that_is_deleted_meanwhile(full: House) -> None:
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=1024, window_size=1024)
    receiver.take()
    full.ok("STREAM.DELETE.S")
    full.pass_time(SECOND)
    assert receiver.take().end == b"NATS/1.0 500 stream closed\r\n\r\n"


def test_messages_that_come_or_go_meanwhile(full: House) -> None:
    receiver = Receiver(full, acks=1)
    receiver.ask(chunk_size=1024, window_size=1024)
    full.publish("s.new", b"later")
    full.ok("STREAM.MSG.DELETE.S", {"seq": 40})
    receiver.acks = 1 << 30
    for _, reply in receiver.take().chunks[-1:]:
        receiver.client.send(f"PUB {reply} 0\r\n\r\n")
    receiver.take()
    assert receiver.end == b"NATS/1.0 204\r\n\r\n"
    blocks = b"".join(v for k, v in files_of(receiver.data).items() if k.endswith(".blk"))
    assert b"later" not in blocks


@pytest.mark.parametrize("subject", ["", "a.*", "a.>", "a b", ".a", "a..b"])
def test_deliver_subjects_that_are_none(full: House, subject: str) -> None:
    answer = full.error("STREAM.SNAPSHOT.S", {"deliver_subject": subject, "no_consumers": True})
    assert answer == (10015, "deliver subject not valid")


def test_refusals(full: House) -> None:
    assert full.error("STREAM.SNAPSHOT.S")[0] == 10003
    assert full.error("STREAM.SNAPSHOT.T", {"deliver_subject": "a"})[0] == 10059
    full.stream("M", subjects=["m"], storage="memory")
    assert full.error("STREAM.SNAPSHOT.M", {"deliver_subject": "a"}) == (
        10064,
        "snapshot failed: no impl",
    )


def test_advisories(full: House) -> None:
    events = advisories(full)
    backup(full)
    created, complete = told(events)
    assert created["type"] == "io.nats.jetstream.advisory.v1.snapshot_create"
    assert created["state"]["messages"] == 40
    assert complete["type"] == "io.nats.jetstream.advisory.v1.snapshot_complete"
    assert (complete["stream"], "error" in complete) == ("S", False)
    assert complete["start"] <= complete["end"]


def test_a_check_of_all_messages_first(full: House, tmp_path: Path) -> None:
    answer, data = backup(full, jsck=True)
    assert answer["state"]["messages"] == 40
    assert files_of(data)
    house = full.restart()
    [segment] = (tmp_path / "jetstream/$G/streams/S/log").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    receiver = Receiver(house)
    answer = receiver.ask(jsck=True)
    assert answer["error"]["err_code"] == 10064
    assert answer["error"]["description"].endswith("snapshot check detected 1 bad messages")
    assert not house.engine.accounts["$G"].transfers


def test_a_large_stream_goes_out_in_slices(house: House) -> None:
    house.stream(subjects=["s"], duplicate_window=SECOND)
    for _ in range(60):
        house.server.router.publish_message("s", bytes(100_000))
    house.server.hub.settle()
    receiver = Receiver(house)
    turns = house.server.hub.turns
    receiver.ask()
    receiver.take()
    assert receiver.end is not None
    assert house.server.hub.turns - turns > 6_000_000 // (300 * 1024)
    blocks = [name for name in files_of(receiver.data) if name.endswith(".blk")]
    assert blocks == ["msgs/1.blk", "msgs/2.blk"]
