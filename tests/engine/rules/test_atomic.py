"""Atomic batches of one server: open batches, commits, and the state after the end."""

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import PyDisk
from pelton.engine.base.settings import BatchLimits
from pelton.engine.rules.atomic import without
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.ways import length

COMMIT = "Nats-Batch-Commit: 1"
EOB = "Nats-Batch-Commit: eob"


def block(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def put(
    house: House, batch: str, seq: int, *more: str, body: bytes = b"x", subject: str = "S"
) -> Any:
    """Send one message of a batch; return None for the empty ack, else the PubAck."""
    lines = block(f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {seq}", *more)
    answers = house.request(subject, body, lines)
    assert len(answers) == 1
    return json.loads(bytes(answers[0][1])) if answers[0][1] else None


def messages(house: House, stream: str = "S") -> list[bytes]:
    log = house.engine.accounts["$G"].streams[stream].core.log
    found = [log.get(seq) for seq in range(1, log.last_seq + 1)]
    return [message.payload for message in found if message is not None]


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.stream(allow_atomic=True)
    return made


def test_a_batch_is_over_at_its_time(house: House) -> None:
    """Also before the timer of the engine has looked."""
    assert put(house, "b", 1) is None
    house.server.clock.advance(10 * SECOND - 1)
    house.server.reactor.turn()
    assert put(house, "b", 2) is None
    house.server.clock.advance(10 * SECOND)
    house.server.reactor.turn()
    assert put(house, "b", 3, COMMIT)["error"]["err_code"] == 10176
    assert messages(house) == []


def test_nothing_is_there_before_the_commit(house: House) -> None:
    house.consumer(ack_policy="none")
    assert put(house, "b", 1, body=b"1") is None
    assert put(house, "b", 2, body=b"2") is None
    assert house.publish("S", b"plain")["seq"] == 1
    assert messages(house) == [b"plain"]
    assert [event[5] for event in house.pull(9)] == [b"plain"]
    assert put(house, "b", 3, COMMIT, body=b"3") == {
        "stream": "S",
        "seq": 4,
        "batch": "b",
        "count": 3,
    }
    assert [event[5] for event in house.pull(9)] == [b"1", b"2", b"3"]


def test_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    disk = SimDisk(reorders=False)
    house = House(tmp_path, disk=PyDisk(disk))
    house.stream(allow_atomic=True)
    put(house, "b", 1)
    disk.fail_sync = 5
    lines = block("Nats-Batch-Id: b", "Nats-Batch-Sequence: 2", COMMIT)
    assert house.request("S", b"x", lines) == []


def test_a_batch_is_given_up_after_its_time(house: House) -> None:
    house.client.send("SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.> 2\r\n")
    put(house, "b", 1)
    house.pass_time(9 * SECOND)
    put(house, "b", 2)
    house.pass_time(9 * SECOND)
    assert house.client.events() == []
    house.pass_time(2 * SECOND)
    (event,) = house.client.events()
    told = json.loads(bytes(event[5]))
    assert event[1] == "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"
    assert (told["batch"], told["reason"], told["stream"]) == ("b", "timeout", "S")
    assert put(house, "b", 3, COMMIT)["error"]["err_code"] == 10176
    assert house.engine.accounts["$G"].batches.atomic.count == 0
    assert house.engine.accounts["$G"].batches.staged_bytes.count == 0


@pytest.mark.parametrize("end", ["delete", "update", "restart"])
def test_open_batches_end_with_the_stream(tmp_path: Path, end: str) -> None:
    house = House(tmp_path)
    house.stream(allow_atomic=True)
    put(house, "b", 1)
    assert house.engine.accounts["$G"].batches.atomic.count == 1
    if end == "delete":
        house.ok("STREAM.DELETE.S")
    elif end == "update":
        house.ok("STREAM.UPDATE.S", {"name": "S"})
    else:
        house = house.restart()
    assert house.engine.accounts["$G"].batches.atomic.count == 0
    assert house.engine.accounts["$G"].batches.staged_bytes.count == 0
    if end == "restart":
        assert put(house, "b", 2, COMMIT)["error"]["err_code"] == 10176


def test_limits_are_settings(tmp_path: Path) -> None:
    limits = BatchLimits(
        max_inflight_per_stream=2,
        max_inflight_total=3,
        max_msgs=2,
        max_staged_bytes=20_000,
        timeout_ns=SECOND,
    )
    house = House(tmp_path, batch=limits)
    house.stream("S", allow_atomic=True)
    house.stream("T", allow_atomic=True, subjects=["T"])
    assert put(house, "a", 1) is None
    assert put(house, "b", 1) is None
    assert put(house, "c", 1)["error"]["err_code"] == 10210
    assert put(house, "c", 1, subject="T") is None
    assert put(house, "d", 1, subject="T")["error"]["err_code"] == 10210
    assert put(house, "a", 2) is None
    assert put(house, "a", 3)["error"]["description"] == "atomic publish batch is too large: 2"
    assert put(house, "a", 1, body=b"y" * 19_900)["error"]["err_code"] == 10023
    house.pass_time(2 * SECOND)
    assert house.engine.accounts["$G"].batches.atomic.count == 0
    assert house.engine.accounts["$G"].batches.staged_bytes.count == 0


def test_rollups_and_ends_within_a_batch(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(allow_atomic=True, allow_rollup_hdrs=True, allow_msg_ttl=True, subjects=["s.*"])
    for subject in ("s.a", "s.b", "s.a"):
        house.publish(subject, b"old")
    put(house, "r", 1, "Nats-Rollup: sub", subject="s.a", body=b"1")
    put(house, "r", 2, subject="s.a", body=b"2")
    put(house, "r", 3, COMMIT, "Nats-TTL: 5", subject="s.b", body=b"3")
    assert messages(house) == [b"old", b"1", b"2", b"3"]
    house = house.crash()
    assert messages(house) == [b"old", b"1", b"2", b"3"]
    house.pass_time(7 * SECOND)
    assert messages(house) == [b"old", b"1", b"2"]
    put(house, "q", 1, "Nats-Rollup: all", subject="s.a", body=b"4")
    put(house, "q", 2, COMMIT, subject="s.c", body=b"5")
    assert messages(house) == [b"4", b"5"]
    put(house, "p", 1, subject="s.c")
    refused = put(house, "p", 2, COMMIT, "Nats-Rollup: sub", subject="s.c")
    assert refused["error"]["description"] == "batch rollup sub invalid"
    put(house, "p", 1, subject="s.c")
    refused = put(house, "p", 2, COMMIT, "Nats-Rollup: all", subject="s.d")
    assert refused["error"]["description"] == "batch rollup all invalid"
    assert messages(house) == [b"4", b"5"]


@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_batches_are_whole(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(reorders=False)
    house = House(Path("store"), disk=PyDisk(disk))
    house.stream(allow_atomic=True)
    number = 0
    kept: list[list[bytes]] = []
    for _ in range(6):
        for _ in range(rng.randint(1, 4)):
            number += 1
            count = rng.randint(1, 6)
            bodies = [b"%d.%d " % (number, n) + b"y" * rng.randint(0, 400) for n in range(count)]
            for n, body in enumerate(bodies, 1):
                commit = (COMMIT,) if n == count else ()
                answer = put(house, f"b{number}", n, *commit, body=body)
            assert answer["count"] == count
            kept.append(bodies)
        # a power cut follows this batch, and may tear its write anywhere
        disk.sync = lambda handle: None  # type: ignore[method-assign]  # nothing gets durable
        bodies = [b"last.%d" % n for n in range(3)]
        for n, body in enumerate(bodies, 1):
            put(house, "last", n, *((COMMIT,) if n == 3 else ()), body=body)
        del disk.sync
        disk.crash(rng)
        house = house.crash()
        assert not house.alarms()
        found = messages(house)
        assert found in (
            [b for each in kept for b in each],
            [b for e in [*kept, bodies] for b in e],
        )
        if found[-1] == bodies[-1]:
            kept.append(bodies)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 2),
            st.sampled_from(["", "", "", COMMIT, EOB]),
        ),
        max_size=40,
    )
)
@settings(max_examples=length(25, 60), deadline=None)
def test_batches_do_what_the_model_does(steps: list[tuple[str, int, str]]) -> None:
    """`skip`: 1 is the next sequence, 0 repeats one, 2 leaves one out."""
    house = House(Path("store"), disk=PyDisk(SimDisk()))
    house.stream(allow_atomic=True, storage="memory")
    is_open: dict[str, list[bytes]] = {}
    stored: list[bytes] = []
    for number, (batch, skip, end) in enumerate(steps):
        before = len(is_open.get(batch, []))
        seq = before + skip
        body = b"%d" % number
        answer = put(house, batch, seq, *((end,) if end else ()), body=body)
        if skip != 1 or (end == EOB and before == 0):
            is_open.pop(batch, None)
            assert answer["error"]["err_code"] == 10176
        elif not end:
            is_open.setdefault(batch, []).append(body)
            assert answer is None
        else:
            stored += is_open.pop(batch, []) + ([body] if end == COMMIT else [])
            count = before + (end == COMMIT)
            assert answer == {"stream": "S", "seq": len(stored), "batch": batch, "count": count}
        assert messages(house) == stored
    assert house.engine.accounts["$G"].batches.atomic.count == len(is_open)


def test_header_blocks_without_a_line() -> None:
    assert without(block("A: 1", "B: 2", "A: 3"), b"A") == block("B: 2")
    assert without(block("A: 1"), b"A") == b""
    assert without(block("AB: 1"), b"A") == block("AB: 1")


LAST = "Nats-Expected-Last-Sequence: {}".format
OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence: {}".format
SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject: {}".format
ID = "Nats-Msg-Id: {}".format
ROLLUP = "Nats-Rollup: sub"


@pytest.mark.parametrize(
    ("batch", "err_code"),
    [
        ([("s.c", LAST(2)), ("s.a",)], 0),
        ([("s.c", LAST(1)), ("s.a",)], 10071),
        ([("s.c",), ("s.a", LAST(3))], 10164),
        ([("s.c",), ("s.a", LAST(2))], 10071),
        ([("s.c",), ("s.a", OF_SUBJECT(1))], 0),
        ([("s.a", OF_SUBJECT(1)), ("s.b", OF_SUBJECT(2))], 0),
        ([("s.a", OF_SUBJECT(2)), ("s.b",)], 10071),
        ([("s.a",), ("s.b",), ("s.a", OF_SUBJECT(1))], 10164),
        ([("s.a",), ("s.b", OF_SUBJECT(1), SUBJECT("s.a"))], 10164),
        ([("s.c",), ("s.d", OF_SUBJECT(2), SUBJECT("s.*"))], 0),
        ([("s.c", SUBJECT("s.a")), ("s.d",)], 10193),
        ([("s.a", "Nats-Expected-Last-Msg-Id: x"), ("s.b",)], 10177),
        ([("s.a", "Nats-Expected-Stream: S"), ("s.b",)], 0),
        ([("s.a",), ("s.b", "Nats-Expected-Stream: T")], 10060),
        ([("s.c", ID("new")), ("s.c", ID("newer"))], 0),
        ([("s.c", ID("new")), ("s.c", ID("new"))], 10201),
        ([("s.c",), ("s.c", ID("there"))], 10201),
        # between ordinary messages, messages that a rule is asked about
        ([("s.c",), ("s.a", ROLLUP), ("s.c", OF_SUBJECT(0))], 10164),
        ([("s.c",), ("s.a", ROLLUP), ("s.b", OF_SUBJECT(2))], 0),
        ([("s.c",), ("s.b",), ("s.c", ROLLUP)], 10111),
        ([("s.c",), ("s.a", "Nats-Rollup: no")], 10111),
        ([("s.c", "Nats-TTL: 9"), ("s.a",)], 10166),
        ([("s.c",), ("s.a", "Nats-Incr: 1")], 10168),
        ([("s.c",), ("s.a", "Nats-Schedule: @at 2030-01-01T00:00:00Z")], 10188),
        ([("s.c",), ("s.a", "Nats-Stream-Source: X 1")], 10227),
    ],
)
def test_what_a_batch_is_checked_for(
    tmp_path: Path, batch: list[tuple[str, ...]], err_code: int
) -> None:
    """As in nats-server (tests/compat compares both): all messages of a batch, or none."""
    house = House(tmp_path)
    house.stream(allow_atomic=True, allow_rollup_hdrs=True, subjects=["s.*"])
    house.publish("s.a", b"a", block(ID("there")))
    house.publish("s.b", b"b")
    answer = None
    for number, (subject, *lines) in enumerate(batch, 1):
        commit = [COMMIT] if number == len(batch) else []
        body = b"%d" % number
        answer = put(house, "c", number, *lines, *commit, subject=subject, body=body)
    assert answer is not None
    if err_code:
        assert answer["error"]["err_code"] == err_code
        assert messages(house) == [b"a", b"b"]
    else:
        assert answer["count"] == len(batch)
        assert answer["seq"] == 2 + len(batch)
        assert messages(house)[-len(batch) :] == [b"%d" % n for n in range(1, len(batch) + 1)]


@pytest.mark.parametrize("ruled", [False, True])
def test_headers_are_stored_as_they_came(tmp_path: Path, ruled: bool) -> None:
    """Headers stay except for the API level; the message that `eob` ends gets the commit. The same
    with and without a rule that sees all messages.
    """
    house = House(tmp_path)
    fields: dict[str, Any] = {"republish": {"src": ">", "dest": "seen.>"}} if ruled else {}
    house.stream(allow_atomic=True, subjects=["s.*"], **fields)
    put(house, "h", 1, "A: 1", "Nats-Required-Api-Level: 1", subject="s.a", body=b"one")
    put(house, "h", 2, "B: 2", ID("two"), subject="s.b", body=b"")
    put(house, "h", 3, EOB, subject="s.c", body=b"not stored")
    log = house.engine.accounts["$G"].streams["S"].core.log
    assert log.last_seq == 2
    stored = [log.get(seq) for seq in (1, 2)]
    found = [(m.subject, m.headers, m.payload) for m in stored if m is not None]
    ours = ("Nats-Batch-Id: h", "Nats-Batch-Sequence: {}".format)
    assert found == [
        ("s.a", block(ours[0], ours[1](1), "A: 1"), b"one"),
        ("s.b", block(ours[0], ours[1](2), "B: 2", ID("two"), COMMIT), b""),
    ]
    assert house.publish("s.d", b"x", block(ID("two")))["duplicate"] is True


def test_room_is_looked_at_for_all_of_a_batch(tmp_path: Path) -> None:
    house = House(tmp_path)
    limits: dict[str, Any] = {"discard": "new", "max_msgs_per_subject": 2}
    limits["discard_new_per_subject"] = True
    house.stream(allow_atomic=True, subjects=["s.*"], max_msgs=6, **limits)

    def commit(subjects: str) -> int:
        answer = None
        for number, letter in enumerate(subjects, 1):
            more = [COMMIT] if number == len(subjects) else []
            answer = put(house, "r", number, *more, subject=f"s.{letter}")
        assert answer is not None
        return int(answer["error"]["err_code"]) if "error" in answer else 0

    assert commit("aba") == 0
    assert commit("ba") == 10077
    assert commit("cc") == 0
    assert commit("de") == 10077
    assert commit("b") == 0
    assert len(messages(house)) == 6


@pytest.mark.parametrize("ruled", [False, True])
def test_what_a_server_adds_for_its_services_is_not_stored(tmp_path: Path, ruled: bool) -> None:
    house = House(tmp_path)
    fields: dict[str, Any] = {}
    if ruled:
        fields["subject_transform"] = {"src": "s.a", "dest": "s.b"}
    house.stream(allow_atomic=True, subjects=["s.*"], **fields)
    put(house, "h", 1, "Nats-Request-Info: {}", "A: 1", subject="s.a")
    put(house, "h", 2, COMMIT, "Nats-Request-Info: {}", subject="s.c")
    log = house.engine.accounts["$G"].streams["S"].core.log
    found = [log.get(seq) for seq in (1, 2)]
    assert [(m.subject, b"Request-Info" in m.headers) for m in found if m is not None] == [
        ("s.b" if ruled else "s.a", False),
        ("s.c", False),
    ]


def test_counters_of_a_batch_are_not_larger_than_messages_may_be(tmp_path: Path) -> None:
    house = House(tmp_path)
    room = len(block("Nats-Batch-Id: n", "Nats-Batch-Sequence: 1", "Nats-Incr: 1", COMMIT)) + 11
    house.stream(allow_atomic=True, allow_msg_counter=True, max_msg_size=room)
    answer = put(house, "n", 1, "Nats-Incr: 9", COMMIT, body=b"")
    assert answer["count"] == 1
    answer = put(house, "n", 1, "Nats-Incr: 9", COMMIT, body=b"")
    assert answer["error"]["err_code"] == 10054
    assert messages(house) == [b'{"val":"9"}']


def test_a_batch_that_is_stored_is_acknowledged_whatever_the_disk_says_of_older_ones() -> None:
    """As for a single message: older messages that a lost rollup should have removed stay until the
    next rollup.
    """
    disk = SimDisk(reorders=False)
    house = House(Path("store"), disk=PyDisk(disk), segment_bytes=4096)
    house.stream(allow_atomic=True, allow_rollup_hdrs=True, subjects=["s.*"])

    def old() -> int:
        return int(house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]["s.a"])

    for number in range(20):
        house.publish("s.a", b"%d" % number * 1000)
        house.publish("s.b", b"%d" % number * 1000)
    house = house.restart()
    disk.fail("read", errno.EIO, times=None)
    put(house, "r", 1, ROLLUP, subject="s.a", body=b"new")
    answer = put(house, "r", 2, COMMIT, subject="s.c", body=b"newer")
    disk.heal()
    assert old() > 1
    assert messages(house)[-2:] == [b"new", b"newer"]
    assert answer == {"stream": "S", "seq": 42, "batch": "r", "count": 2}
    assert put(house, "r", 1, ROLLUP, COMMIT, subject="s.a", body=b"newest")["count"] == 1
    assert old() == 1


def test_the_commit_that_ends_a_batch_is_counted(tmp_path: Path) -> None:
    """The bytes that `eob` adds to the last message have to fit too."""
    house = House(tmp_path)
    house.stream("T", allow_atomic=True, subjects=["T"], storage="memory")
    put(house, "t", 1, COMMIT, subject="T")
    size = house.ok("STREAM.INFO.T")["state"]["bytes"]
    limits: dict[str, Any] = {"discard": "new", "storage": "memory", "allow_atomic": True}
    house.stream("S", max_bytes=size - 1, **limits)
    put(house, "t", 1)
    assert put(house, "t", 2, EOB)["error"]["description"] == "maximum bytes exceeded"
    assert messages(house) == []
    house.stream("U", max_bytes=size, subjects=["U"], **limits)
    put(house, "t", 1, subject="U")
    assert put(house, "t", 2, EOB, subject="U")["count"] == 1
