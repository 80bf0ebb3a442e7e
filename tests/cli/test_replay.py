"""``replay`` and ``diff-stream``: the rhythm of messages, and what two streams have in common."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import StreamConfig, StreamSource
from pelton.cli.streams.comparing import (
    CHANGED,
    EXTRA,
    MISSING,
    Message,
    by_id,
    by_order,
    by_seq,
)
from pelton.cli.streams.replaying import Rhythm
from pelton.sync import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pelton.sync import JetStream
    from tests.peers import ServerProcess

    from .conftest import Ran

    Run = Callable[..., Ran]


@pytest.fixture
def js(peer: ServerProcess) -> Iterator[JetStream]:
    with connect(peer.url) as client:
        yield client.jetstream()


# -- rhythm -----------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 10**12), min_size=1),
    st.sampled_from([0.5, 1.0, 10.0]),
    st.none() | st.integers(0, 10**10),
)
def test_waits_are_those_of_the_stream(gaps: list[int], speed: float, most: int | None) -> None:
    times = list(itertools.accumulate(gaps, initial=1_700_000_000_000_000_000))
    rhythm = Rhythm(speed, most)
    due = [rhythm.due_ns(each) for each in times]
    wanted = [min(gap / speed, gap / speed if most is None else most) for gap in gaps]
    assert due[0] == 0
    for (before, after), wait in zip(itertools.pairwise(due), wanted, strict=True):
        assert abs(after - before - wait) <= 2 + after * 1e-12
    unhurried = Rhythm(0, most)
    assert [unhurried.due_ns(each) for each in times] == [0] * len(times)


def recorded(js: JetStream, name: str, gaps_s: list[float]) -> None:
    """A stream whose messages came with these gaps."""
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    for number, gap in enumerate([0.0, *gaps_s]):
        js.client.wait_until(lambda: False, gap)
        js.publish(
            f"{name}.{number}", b"%d" % number, headers={"A": str(number)}, msg_id=f"{number}"
        )


def times_of(js: JetStream, name: str) -> list[int]:
    last = js.stream_info(name).state.last_seq
    return [js.get_message(name, seq).timestamp_ns for seq in range(1, last + 1)]


def test_messages_come_as_they_came(at: Run, js: JetStream, unique: str) -> None:
    recorded(js, unique, [0.2, 0.0, 0.4])
    js.create_stream(StreamConfig(name=f"{unique}c", subjects=[f"{unique}c.>"]))
    move = ("--map", f"{unique}.>:{unique}c.>")
    begun = time.time_ns()
    ran = at("replay", unique, "--speed", "2x", *move, "-J", "--json")
    assert (ran.status, ran.json["messages"]) == (0, 4), ran.err
    was, now = times_of(js, unique), times_of(js, f"{unique}c")
    for before, after in zip(was, now, strict=True):
        # a machine that is busy is late, never early; what follows a late one may follow soon
        assert after - begun > (before - was[0]) / 2 - 1_000_000
    assert now[-1] - now[0] >= 0.25e9
    assert [js.get_message(f"{unique}c", seq).headers.lists() for seq in range(1, 5)] == [
        {"A": [str(number)]} for number in range(4)
    ]
    assert at("diff-stream", unique, f"{unique}c", "--by", "order", *move).status == 2
    ran = at(
        *("diff-stream", unique, f"{unique}c", "--by", "order", *move),
        *("--ignore-header", "Nats-Msg-Id"),
    )
    assert (ran.status, "the same" in ran.out) == (0, True), ran


def test_a_part_of_a_stream_at_once(at: Run, js: JetStream, unique: str) -> None:
    recorded(js, unique, [0.0] * 9)
    js.create_stream(StreamConfig(name=f"{unique}c", subjects=[f"{unique}c"]))
    ran = at(
        *("replay", unique, "--speed", "max", "--from", 3, "--to", 8, "-n", 4, "--json"),
        *("--publish-to", f"{unique}c", "--no-headers"),
    )
    assert (ran.status, ran.json["messages"]) == (0, 4), ran.err
    js.client.wait_until(lambda: js.stream_info(f"{unique}c").state.last_seq == 4, 20)
    assert [js.get_message(f"{unique}c", seq).data for seq in range(1, 5)] == [
        b"2",
        b"3",
        b"4",
        b"5",
    ]
    assert js.get_message(f"{unique}c", 1).headers.lists() == {}


def test_into_the_same_stream_only_when_it_is_meant(at: Run, js: JetStream, unique: str) -> None:
    recorded(js, unique, [0.0, 0.0])
    ran = at("replay", unique, "--speed", "max", stdin=b"n\n")
    assert ran.status == 130
    assert at("replay", unique, "--speed", "max", "-J", stdin=b"y\n").status == 0
    assert at("replay", unique, "--speed", "max", "-J", "--force").status == 0
    assert js.stream_info(unique).state.messages == 12


def test_what_would_be_published(at: Run, js: JetStream, unique: str) -> None:
    recorded(js, unique, [0.1, 0.1])
    ran = at("replay", unique, "--speed", "0.5", "--map", f"{unique}.*:x.$1", "--dry-run", "--json")
    assert [each["subject"] for each in ran.lines] == ["x.0", "x.1", "x.2"]
    after = [each["after"] for each in ran.lines]
    assert after[0] == 0
    assert after[1] > 0.19
    assert after[2] > 0.39
    capped = at("replay", unique, "--max-wait", "50ms", "--dry-run", "--json").lines
    assert [each["after"] for each in capped] == [0, 0.05, 0.1]
    assert js.stream_info(unique).state.messages == 3
    for wrong in ("0", "fast", "-1", "1xx"):
        assert at("replay", unique, "--speed", wrong).status == 2
    assert at("replay", unique, "--map", "a").status == 2
    assert at("replay", unique, "--target-server", "a", "--target-context", "b").status == 2


def test_out_of_a_backup(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    recorded(js, unique, [0.0] * 3)
    assert at("stream", "backup", unique, tmp_path / "b").status == 0
    ran = at("replay", unique, "--store", tmp_path / "b", "--speed", "max", "-J")
    assert ran.status == 0, ran.err
    assert js.stream_info(unique).state.messages == 8
    same = ("diff-stream", unique, unique, "--other-store", tmp_path / "b")
    assert at(*same, "--to", 4).status == 0
    ran = at(*same, "--json")
    assert (ran.status, ran.json["counts"]) == (
        2,
        {"a": 8, "b": 4, "missing": 4, "extra": 0, "different": 0},
    )
    assert at(*same, "--store", tmp_path / "b").status == 0


# -- differences ------------------------------------------------------------------------------------


def message(seq: int, text: str, msg_id: str = "", ts_ns: int = 0) -> Message:
    return Message(seq, ts_ns, "s", (), text.encode(), msg_id)


TEXTS = st.lists(st.sampled_from("abcdef"), max_size=30)


@given(st.dictionaries(st.integers(1, 20), st.sampled_from("ab")), st.data())
def test_by_sequence(a: dict[int, str], data: st.DataObject) -> None:
    b = data.draw(st.dictionaries(st.integers(1, 20), st.sampled_from("ab")))
    found = list(
        by_seq(
            iter([message(seq, text) for seq, text in sorted(a.items())]),
            iter([message(seq, text) for seq, text in sorted(b.items())]),
            True,
        )
    )
    kinds = {(each.a or each.b).seq: each.kind for each in found}  # type: ignore[union-attr]  # one is there
    assert kinds == {
        **dict.fromkeys(a.keys() - b.keys(), MISSING),
        **dict.fromkeys(b.keys() - a.keys(), EXTRA),
        **{seq: CHANGED for seq in a.keys() & b.keys() if a[seq] != b[seq]},
    }


@given(TEXTS, TEXTS)
def test_by_order(a: list[str], b: list[str]) -> None:
    """Without what is missing, and with what is extra, A is B."""
    left = [message(seq, text) for seq, text in enumerate(a)]
    right = [message(seq, text) for seq, text in enumerate(b)]
    found = list(by_order(iter(left), iter(right), True))
    missing = {each.a.seq for each in found if each.a}
    extra = {each.b.seq for each in found if each.b}
    assert [t for seq, t in enumerate(a) if seq not in missing] == [
        t for seq, t in enumerate(b) if seq not in extra
    ]
    if a == b:
        assert not found


@given(TEXTS, st.sets(st.integers(0, 29)))
def test_a_few_that_are_missing(texts: list[str], gone: set[int]) -> None:
    """Contents that are there once: exactly those that were taken away are missing."""
    left = [message(seq, f"{text}{seq}") for seq, text in enumerate(texts)]
    right = [each for each in left if each.seq not in gone]
    found = list(by_order(iter(left), iter(right), True))
    assert [each.a.seq for each in found if each.a] == sorted(gone & set(range(len(texts))))
    assert all(each.kind == MISSING for each in found)


@given(st.lists(st.tuples(st.sampled_from(["", "1", "2"]), st.sampled_from("ab")), max_size=12))
def test_by_id(pairs: list[tuple[str, str]]) -> None:
    half = len(pairs) // 2
    a = [message(seq, text, msg_id) for seq, (msg_id, text) in enumerate(pairs[:half])]
    b = [message(seq, text, msg_id) for seq, (msg_id, text) in enumerate(pairs[half:])]
    found = list(by_id(iter(a), iter(b), True))

    def keys(messages: list[Message]) -> Counter[Any]:
        return Counter(each.msg_id or each.data for each in messages)

    kinds = Counter(each.kind for each in found)
    assert kinds[MISSING] == (keys(a) - keys(b)).total()
    assert kinds[EXTRA] == (keys(b) - keys(a)).total()


def test_a_mirror_and_its_origin(at: Run, js: JetStream, unique: str) -> None:
    recorded(js, unique, [0.0] * 20)
    js.create_stream(StreamConfig(name=f"{unique}m", mirror=StreamSource(name=unique)))
    js.client.wait_until(lambda: js.stream_info(f"{unique}m").state.last_seq == 21, 30)
    ran = at("diff-stream", unique, f"{unique}m")
    assert (ran.status, "the same" in ran.out) == (0, True), ran
    js.delete_message(f"{unique}m", 7)
    js.delete_message(unique, 9)
    ran = at("diff-stream", unique, f"{unique}m", "--json")
    assert ran.status == 2
    assert [(each["kind"], each["seq_a"], each["seq_b"]) for each in ran.json["differences"]] == [
        ("missing", 7, None),
        ("extra", None, 9),
    ]
    assert at("diff-stream", unique, f"{unique}m", "--from", 10).status == 0
    ran = at("diff-stream", unique, f"{unique}m", "-n", 1)
    assert "1 not shown" in ran.out
    assert at("diff-stream", unique, "nothing").status == 1
    ran = at("diff-stream", unique, unique, "--other-server", "a", "--other-store", "b")
    assert ran.status == 2
