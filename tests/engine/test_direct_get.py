"""Direct get, compared with a list of messages: batches and the last message of each subject, in
file and memory streams. No message is shown before it is as durable as promised.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pelton.core.protocol.subjects import matches
from pelton.engine.calls import direct_get
from tests.engine.house import House
from tests.ways import length

SUBJECTS = ["a", "a.b", "a.c", "b.c", "b.c.d"]
PATTERNS = [*SUBJECTS, ">", "a.*", "*", "b.>", "*.c", "none", "none.*"]
HEADER = b"NATS/1.0\r\nX: 1\r\n\r\n"
COMMON = settings(
    max_examples=length(20, 40),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)

MESSAGES = st.lists(
    st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 40), st.booleans(), st.integers(0, 9)),
    max_size=25,
)
"""Subject, size, whether it has headers, and whether it is deleted afterwards (below 3)."""


class Held:
    """A stream, and the messages that it should have: sequence -> (subject, headers, payload)."""

    def __init__(self, folder: str, messages: list[tuple[str, int, bool, int]], storage: str):
        self.house = House(Path(folder))
        self.house.stream(subjects=["a", "a.*", "b.>", "x.>"], storage=storage, allow_direct=True)
        self.live: dict[int, tuple[str, bytes, bytes]] = {}
        core = self.house.engine.accounts["$G"].streams["S"].core
        for subject, size, headed, _ in messages:
            headers = HEADER if headed else b""
            seq = core.publish(subject, b"x" * size, headers)
            self.live[seq] = (subject, headers, b"x" * size)
        for seq, message in enumerate(messages, 1):
            if message[3] < 3:
                self.house.ok("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
                del self.live[seq]
        self.house.server.reactor.settle()
        self.last = core.log.last_seq

    def get(self, **request: Any) -> list[tuple[bytes, bytes]]:
        return self.house.request("$JS.API.DIRECT.GET.S", request)

    def wanted(self, pattern: str) -> list[int]:
        return [seq for seq in sorted(self.live) if matches(self.live[seq][0], pattern)]

    def size(self, seq: int) -> int:
        subject, headers, payload = self.live[seq]
        return len(subject) + len(headers) + len(payload)

    def shown(self, seq: int, pending: int, last: int) -> tuple[bytes, bytes]:
        subject, headers, payload = self.live[seq]
        head = headers[:-2] if headers else b"NATS/1.0\r\n"
        lines = (
            f"Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {seq}\r\n"
            f"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n"
            f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\n\r\n"
        )
        return head + lines.encode(), payload


def end(pending: int, last: int, more: str = "") -> tuple[bytes, bytes]:
    text = f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\n"
    return f"{text}{more}\r\n".encode(), b""


@COMMON
@given(
    messages=MESSAGES,
    storage=st.sampled_from(["file", "memory"]),
    start=st.integers(0, 27),
    pattern=st.sampled_from(["", *PATTERNS]),
    count=st.integers(1, 30),
    most=st.sampled_from([0, 1, 20, 60, 1000]),
)
@example(
    # One subject has messages on both sides of the start, another subject only behind it.
    messages=[(subject, 1, False, 9) for subject in ("a", "a.c", "a", "a.b", "a", "a.c")],
    storage="file",
    start=3,
    pattern="a.*",
    count=1,
    most=0,
)
def test_batches(
    messages: list[tuple[str, int, bool, int]],
    storage: str,
    start: int,
    pattern: str,
    count: int,
    most: int,
) -> None:
    if not (start or pattern):
        return
    with tempfile.TemporaryDirectory() as folder:
        held = Held(folder, messages, storage)
        request = {"seq": start, "batch": count, "max_bytes": most}
        answers = held.get(**request, **({"next_by_subj": pattern} if pattern else {}))
        found = [seq for seq in held.wanted(pattern or ">") if seq >= start]
        expected, sent, last = [], 0, 0
        for seq in found[:count]:
            expected.append(held.shown(seq, len(found) - len(expected) - 1, last))
            last = seq
            sent += held.size(seq)
            if most and sent >= most:
                break
        if expected:
            expected.append(end(len(found) - len(expected), last))
        assert answers == (expected or [(b"NATS/1.0 404 Message Not Found\r\n\r\n", b"")])
        held.house.engine.close()


@COMMON
@given(
    messages=MESSAGES,
    storage=st.sampled_from(["file", "memory"]),
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
    start=st.integers(0, 27),
    upto=st.integers(0, 27),
    count=st.sampled_from([0, 1, 2, 30]),
    most=st.sampled_from([0, 1, 40, 1000]),
)
@example(  # the bytes end the batch
    messages=[(subject, 30, True, 9) for subject in ("a", "a.b", "a.c", "a")],
    storage="file",
    patterns=["a", "a.*"],
    start=0,
    upto=0,
    count=0,
    most=40,
)
@example(  # newer messages of the subjects are above the bound
    messages=[(subject, 1, False, 9) for subject in ("a", "a.b", "a", "a.b", "a.b")],
    storage="memory",
    patterns=["a", "a.*"],
    start=2,
    upto=4,
    count=30,
    most=0,
)
def test_the_last_of_each(
    messages: list[tuple[str, int, bool, int]],
    storage: str,
    patterns: list[str],
    start: int,
    upto: int,
    count: int,
    most: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held = Held(folder, messages, storage)
        answers = held.get(
            multi_last=patterns, seq=start, up_to_seq=upto, batch=count, max_bytes=most
        )
        top = upto or held.last
        newest: dict[str, int] = {}
        for seq in sorted(held.live):
            if seq <= top and any(matches(held.live[seq][0], each) for each in patterns):
                newest[held.live[seq][0]] = seq
        found = sorted(newest.values())
        if not found or (storage == "file" and top > held.last):
            assert answers == [(b"NATS/1.0 404 No Results\r\n\r\n", b"")]
            return
        expected, sent, last, pending = [], 0, 0, len(found)
        for seq in found:
            pending -= 1
            if seq < start:
                continue
            expected.append(held.shown(seq, pending, last))
            last = seq
            sent += held.size(seq)
            if (most and sent >= most) or len(expected) == count:
                break
        expected.append(end(pending, last, f"Nats-UpTo-Sequence: {top}\r\n"))
        assert answers == expected
        held.house.engine.close()


@COMMON
@given(
    messages=MESSAGES.filter(lambda found: any(message[3] >= 3 for message in found)),
    page=st.integers(1, 4),
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
)
def test_pages_show_all_of_one_moment(
    messages: list[tuple[str, int, bool, int]], page: int, patterns: list[str]
) -> None:
    """A reader that continues behind the last page sees each subject once, whatever is published
    meanwhile.
    """
    with tempfile.TemporaryDirectory() as folder:
        held = Held(folder, messages, "file")
        whole = held.get(multi_last=patterns)
        seen, start, top = [], 0, 0
        while len(answers := held.get(multi_last=patterns, seq=start, up_to_seq=top, batch=page)):
            *shown, last = answers
            if b"EOB" not in last[0]:
                break
            seen += [payload for _, payload in shown]
            start = int(re.findall(rb"Last-Sequence: (\d+)", last[0])[0]) + 1
            top = int(re.findall(rb"UpTo-Sequence: (\d+)", last[0])[0])
            held.house.send("x.new", b"later")
            if int(re.findall(rb"Num-Pending: (\d+)", last[0])[0]) == 0:
                break
        assert seen == [payload for _, payload in whole[:-1]]
        held.house.engine.close()


def test_nothing_is_shown_before_it_is_durable(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], allow_direct=True)
    for n in range(3):
        house.publish(f"s.{n}")
    reader = house.server.client()
    reader.send("SUB in.> 1\r\n").events()
    core = house.engine.accounts["$G"].streams["S"].core

    def answers() -> list[str]:
        events: list[Any] = reader.parser.feed(reader.connection.take())
        return [event[1].removeprefix("in.") for event in events]

    def ask(name: str, call: str, body: Any) -> None:
        text = json.dumps(body)
        house.client.send(f"PUB $JS.API.{call}.S in.{name} {len(text)}\r\n{text}\r\n")

    # in one turn, before its commit: a publish, then requests for the new message or for the one
    # before
    house.client.send("PUB s.9 3\r\nnew\r\n")
    assert core.visible == 3
    ask("new", "DIRECT.GET", {"last_by_subj": "s.9"})
    ask("batch", "DIRECT.GET", {"seq": 2, "batch": 9})
    ask("each", "DIRECT.GET", {"multi_last": ["s.*"]})
    ask("get", "STREAM.MSG.GET", {"seq": 4})
    ask("old", "DIRECT.GET", {"seq": 1})
    ask("none", "DIRECT.GET", {"seq": 9})
    assert core.log.last_seq == 4
    assert answers() == ["old", "none"]
    house.server.reactor.settle()
    assert core.visible == 4
    assert answers() == ["new", *["batch"] * 4, *["each"] * 5, "get"]


@pytest.mark.parametrize("request_", [{"seq": 1, "batch": 50}, {"multi_last": ["s.*"]}])
def test_a_batch_is_at_most_half_of_what_a_connection_may_hold(
    request_: dict[str, Any], tmp_path: Path
) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.*"], allow_direct=True)
    for number in range(20):
        house.publish(f"s.{number}", b"x" * 1000)
    house.server.reactor.max_pending = 20_000
    *messages, (last, _) = house.request("$JS.API.DIRECT.GET.S", request_)
    assert 5 <= len(messages) <= 10
    assert last.startswith(b"NATS/1.0 204 EOB\r\n")
    assert f"Nats-Num-Pending: {20 - len(messages)}\r\n".encode() in last


DIRECT = ("$JS.API.DIRECT.GET.S", '{"seq":1}')
BY_API = ("$JS.API.STREAM.MSG.GET.S", '{"seq":1}')
DIALECT = ("$JS.STREAM.S.MSG.BYSEQ", "1")


@pytest.mark.parametrize("ask", [DIRECT, BY_API, DIALECT])
def test_requests_wait_when_many_answers_do(ask: tuple[str, str], tmp_path: Path) -> None:
    """What waits for the disk is bounded in bytes; each request is answered, in its order."""
    house = House(tmp_path)
    house.stream(subjects=["s.*"], allow_direct=True)
    reader = house.server.client()
    reader.send("SUB in.> 1\r\n").events()
    core = house.engine.accounts["$G"].streams["S"].core
    house.server.reactor.max_pending = 10_000
    asks = 40
    house.client.send("PUB s.1 1000\r\n" + "x" * 1000 + "\r\n")
    subject, body = ask
    for n in range(asks):
        house.client.send(f"PUB {subject} in.{n} {len(body)}\r\n{body}\r\n")
    answers = direct_get.answers_of(house.engine.accounts["$G"].streams["S"])
    assert answers.is_full()
    house.server.reactor.max_pending = 1 << 20  # of the reader, who is sent all at once
    house.server.reactor.settle()
    assert core.visible == 1
    assert not answers.is_full()
    events: list[Any] = reader.parser.feed(reader.connection.take())
    assert [event[1] for event in events] == [f"in.{n}" for n in range(asks)]
    assert all(b"x" * 1000 in event[5] or b"eHh4" * 333 in event[5] for event in events)
