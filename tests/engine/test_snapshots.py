"""Backups as a client sees them: content, flow control, end."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.engine.backups.nats_files import unpack_state
from tests.engine.backups import Receiver, backup, files_of, unpacked
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
    full.consumer("two", ack_policy="explicit")
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
        "obs/two/meta.inf",
        "obs/two/meta.sum",
        "obs/two/o.dat",
    ]
    assert len(files["msgs/1.blk"]) == answer["state"]["bytes"]
    state = unpack_state(files["obs/one/o.dat"])
    assert (state.delivered_stream, sorted(state.pending)) == (3, [1, 2, 3])
    _, data = backup(full, no_consumers=True)
    assert list(files_of(data)) == ["meta.inf", "meta.sum", "msgs/1.blk"]


def test_consumers_in_memory_are_in_an_archive_that_keeps_their_positions(full: House) -> None:
    full.consumer("one", durable_name="one", ack_policy="explicit")
    full.consumer("mem", ack_policy="explicit", mem_storage=True)
    full.pull(3, "mem")
    answer, data = backup(full)
    assert answer["state"]["consumer_count"] == 2
    found = unpacked(data)
    assert found.startswith(b"NATSARC1")
    assert b'"consumer_count":2' in found[: found.index(b"consumers/one")]
    assert b'"pending":{"1":' in found[found.index(b"consumers/mem") :]
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
    assert receiver.take().end is None  # the ack has started the wait again
    full.pass_time(5 * SECOND)
    assert receiver.take().end == b"NATS/1.0 408 No Flow Response\r\n\r\n"
    assert told(events)[-1]["error"] == "no flow response"
    backup(full)  # another backup may start


def test_who_is_gone_gets_no_more(full: House) -> None:
    events = advisories(full)
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=2000, window_size=4000)
    receiver.take()
    receiver.client.send("UNSUB 7\r\n")
    full.pass_time(SECOND)
    assert told(events)[-1]["error"] == "no interest"
    assert not full.engine.accounts["$G"].transfers


def test_who_listens_no_more_gets_no_more_whatever_wildcard_is_left(full: House) -> None:
    events = advisories(full)
    receiver = Receiver(full, acks=0)
    receiver.client.send("SUB > 8\r\n")
    receiver.ask(chunk_size=2000, window_size=4000)
    receiver.client.send("UNSUB 7\r\n")
    full.pass_time(SECOND)
    assert told(events)[-1]["error"] == "no interest"


def test_nobody_wants_it(full: House) -> None:
    events = advisories(full)
    lonely = Receiver(full, listen=False)
    assert "error" not in lonely.ask()
    full.pass_time(6 * SECOND)
    assert told(events)[-1]["error"] == "no interest"
    assert not full.engine.accounts["$G"].transfers


LATE = 0, 1, 3, 400
"""Messages of 2000 bytes that give none to six chunks with a reply."""


@pytest.mark.parametrize("wildcard", [False, True])
@pytest.mark.parametrize("count", LATE)
def test_a_subscription_that_comes_after_the_answer(
    house: House, count: int, wildcard: bool
) -> None:
    """As the `nats` command, which always has a wildcard subscription for its answers."""
    source = Random(count)
    house.stream(subjects=["s"])
    for _ in range(count):
        house.publish("s", source.randbytes(2000))
    receiver = Receiver(house, listen=False)
    if wildcard:
        receiver.client.send("SUB * 6\r\n")
    receiver.ask()
    house.pass_time(SECOND)
    assert not receiver.client.events()
    if wildcard:
        receiver.client.send("UNSUB 6\r\n")
        # neither of them names the deliver subject
        receiver.client.send("SUB * 6\r\nSUB other 5\r\n")
        house.pass_time(SECOND // 2)
        assert not receiver.client.events()
    receiver.listen()
    receiver.take()
    assert len(receiver.chunks) == -(-len(receiver.data) // (128 * 1024))
    assert receiver.end == (b"NATS/1.0 204\r\n\r\n" if count > 100 else b"")
    state = house.ok("STREAM.INFO.S")["state"]
    blocks = [v for k, v in files_of(receiver.data).items() if k.endswith(".blk")]
    assert sum(map(len, blocks)) == state["bytes"]


def test_a_wildcard_takes_chunks_when_its_first_ack_says_so(full: House) -> None:
    receiver = Receiver(full, acks=0, pattern="*")
    receiver.ask(chunk_size=2000, window_size=10_000)
    full.pass_time(SECOND)
    assert not receiver.take().chunks
    full.pass_time(2 * SECOND)
    assert len(receiver.take().chunks) == 1
    receiver.acks = 1 << 30
    receiver.acknowledge(1)
    receiver.take()
    assert receiver.end == b"NATS/1.0 204\r\n\r\n"
    assert files_of(receiver.data)


def test_a_wildcard_that_takes_no_chunk_fails_the_backup(full: House) -> None:
    receiver = Receiver(full, acks=0, pattern="*")
    receiver.ask(chunk_size=2000)
    full.pass_time(9 * SECOND)
    assert len(receiver.take().chunks) == 1
    assert receiver.end == b"NATS/1.0 408 No Flow Response\r\n\r\n"


@pytest.mark.parametrize("lost", [1, 20, 40])
def test_a_lost_chunk_fails_the_backup(full: House, lost: int) -> None:
    events = advisories(full)
    receiver = Receiver(full, lost=lost)
    receiver.ask(chunk_size=1024)
    receiver.take()
    assert len(receiver.chunks) > 40
    full.pass_time(4 * SECOND)
    assert receiver.take().end is None
    full.pass_time(2 * SECOND)
    assert receiver.take().end == b"NATS/1.0 408 No Flow Response\r\n\r\n"
    assert told(events)[-1]["error"] == "no flow response"


def test_a_lost_chunk_that_is_acknowledged_late_is_not_lost(full: House) -> None:
    receiver = Receiver(full, lost=30)
    receiver.ask(chunk_size=1024)
    receiver.take()
    full.pass_time(4 * SECOND)
    receiver.acknowledge(30)
    assert receiver.take().end == b"NATS/1.0 204\r\n\r\n"


def test_acks_may_be_slow(full: House) -> None:
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=10_000, window_size=10_000)
    acknowledged = 0
    while receiver.take().end is None:
        full.pass_time(4 * SECOND)
        acknowledged += 1
        receiver.acknowledge(acknowledged)
    assert acknowledged > 3
    assert receiver.end == b"NATS/1.0 204\r\n\r\n"
    assert files_of(receiver.data)


def test_who_never_acknowledges_gets_what_the_window_holds(full: House) -> None:
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=2000)
    full.pass_time(3 * SECOND)
    assert receiver.take().end == b"NATS/1.0 204\r\n\r\n"
    assert files_of(receiver.data)


def test_an_ack_counts_once(full: House) -> None:
    receiver = Receiver(full, acks=0)
    receiver.ask(chunk_size=2000, window_size=4000)
    receiver.take()
    for _ in range(5):
        receiver.acknowledge(1)
    lead = receiver.chunks[0][1].rpartition(".")[0]
    for tail in ("9", "0", "-1", "x", "1" * 30):
        receiver.client.send(f"PUB {lead}.{tail} 0\r\n\r\n")
    assert len(receiver.take().chunks) == 3


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


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_large_stream_goes_out_in_slices(house: House, storage: str) -> None:
    house.stream(subjects=["s"], duplicate_window=SECOND, storage=storage)
    for _ in range(60):
        house.server.router.publish_message("s", bytes(100_000))
    house.server.reactor.settle()
    receiver = Receiver(house)
    turns = house.server.reactor.turns
    receiver.ask()
    receiver.take()
    assert receiver.end is not None
    assert house.server.reactor.turns - turns > 6_000_000 // (300 * 1024)
    if storage == "memory":
        assert unpacked(receiver.data).startswith(b"NATSARC1")
    else:
        blocks = [name for name in files_of(receiver.data) if name.endswith(".blk")]
        assert blocks == ["msgs/1.blk", "msgs/2.blk"]
