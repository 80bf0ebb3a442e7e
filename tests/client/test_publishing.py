"""The window of outstanding acks, against what a truthful list would say."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.mailbox import Interest
from pelton.client.base.message import BaseMessage
from pelton.client.publishing import RETRY_S, Window
from pelton.client.session.requests import Tokens
from pelton.errors import ApiError, NoRespondersError, ProtocolError, WrongLastSequenceError

NOBODY = b"NATS/1.0 503\r\n\r\n"
INTEREST = Interest(1, "_INBOX.x.*", "", None)


def answer(
    reply: str, data: bytes = b'{"stream":"S","seq":5}', headers: bytes = b""
) -> BaseMessage:
    return BaseMessage(reply, "", headers, data, INTEREST)


def refuse(acks: Window, reply: str, now: float, *, clustered: bool = True) -> bool:
    """No stream answers; whether the message waits to be sent again."""
    settled = acks.settle(answer(reply, b"", NOBODY))
    assert settled is not None
    entry, error = settled
    assert isinstance(error, NoRespondersError)
    return acks.bear(entry, error, now, clustered=clustered)


def window(size: int = 4, timeout: float = 1.0, attempts: int = 3) -> Window:
    return Window("_INBOX.x", Tokens(random.Random(1).randbytes).next, size, timeout, attempts)


def test_an_ack_finds_its_message() -> None:
    acks = window()
    first = acks.add("s", b"1", b"", "", 0.0, "one")
    second = acks.add("s", b"2", b"", "", 0.0, "two")
    settled = acks.settle(answer(second.reply))
    assert settled is not None
    assert settled[0].waiter == "two"
    assert settled[1].seq == 5
    assert acks.settle(answer(second.reply)) is None, "the second answer is nobody's"
    assert len(acks) == 1
    assert first.reply != second.reply


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"headers": b"NATS/1.0 503\r\n\r\n", "data": b""}, NoRespondersError),
        (
            {
                "data": b'{"error":{"code":400,"err_code":10071,"description":"wrong"},'
                b'"stream":"S","seq":0}'
            },
            WrongLastSequenceError,
        ),
        ({"data": b'{"error":{"code":400,"err_code":64000,"description":"new"}}'}, ApiError),
        ({"data": b"not json"}, ProtocolError),
    ],
)
def test_what_is_no_ack_is_the_error_of_its_message(message: Any, kind: type[Exception]) -> None:
    acks = window()
    entry = acks.add("s", b"1", b"", "", 0.0)
    settled = acks.settle(answer(entry.reply, **message))
    assert settled is not None
    assert settled[0] is entry
    assert isinstance(settled[1], kind)
    if isinstance(settled[1], ApiError):
        assert settled[1].err_code in (10071, 64000)


def test_only_messages_with_an_id_are_sent_again_and_not_for_ever() -> None:
    acks = window(attempts=2)
    plain = acks.add("s", b"1", b"", "", 0.0)
    marked = acks.add("s", b"2", b"h", "id", 0.0)
    assert acks.overdue(0.9) == ([], [])
    assert acks.overdue(1.0) == ([marked], [plain])
    assert acks.next_deadline() == 2.0
    assert acks.overdue(2.0) == ([], [marked])
    assert len(acks) == 0
    assert "2 attempts" in str(acks.why_failed(marked))


def test_a_lost_connection_sends_again_at_once_what_may_be_sent_twice() -> None:
    acks = window()
    plain = acks.add("s", b"1", b"", "", 0.0)
    marked = acks.add("s", b"2", b"h", "id", 0.0)
    assert acks.overdue(0.5, lost=True) == ([marked], [])
    assert acks.overdue(1.0) == ([], [plain])


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="window must be at least 1"):
        window(size=0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "mark", "ack", "refuse", "time", "moment", "lose"]),
            st.integers(0, 5),
        )
    )
)
def test_every_message_is_settled_exactly_once(steps: list[tuple[str, int]]) -> None:
    """Model: a dict of what is outstanding; nothing may vanish or settle twice, and only what has an
    id, or was refused, is sent again.
    """
    acks = window(size=1000, timeout=2.0, attempts=2)
    now = 0.0
    outstanding: dict[str, bool] = {}
    settled: list[str] = []
    refused: dict[str, float] = {}  # since when, of those that are still to be sent again
    for step, number in steps:
        if step in ("add", "mark"):
            entry = acks.add("s", b"", b"", "id" if step == "mark" else "", now)
            outstanding[entry.reply] = step == "mark"
        elif step == "ack" and outstanding:
            reply = sorted(outstanding)[number % len(outstanding)]
            assert acks.settle(answer(reply)) is not None
            settled.append(reply)
            del outstanding[reply]
            refused.pop(reply, None)
        elif step == "refuse" and outstanding:
            reply = sorted(outstanding)[number % len(outstanding)]
            if refuse(acks, reply, now):
                refused.setdefault(reply, now)
            else:
                settled.append(reply)
                del outstanding[reply]
                refused.pop(reply, None)
        else:
            now += number if step == "time" else number / 8 if step == "moment" else 0
            again, failed = acks.overdue(now, lost=step == "lose")
            assert len({entry.reply for entry in [*again, *failed]}) == len(again) + len(failed)
            for entry in again:
                assert outstanding[entry.reply] or entry.reply in refused
                refused.pop(entry.reply, None)
            for entry in failed:
                assert isinstance(acks.why_failed(entry), NoRespondersError) == (
                    entry.reply in refused
                )
                settled.append(entry.reply)
                del outstanding[entry.reply]
                refused.pop(entry.reply, None)
            assert all(now < since + RETRY_S for since in refused.values()), "each has its turn"
            deadline = acks.next_deadline()
            assert deadline is None or deadline > now
        assert acks.full == bool(refused)
        assert len(acks) == len(outstanding)
    settled += [entry.reply for entry in acks.give_up()]
    assert len(settled) == len(set(settled))


def test_what_no_stream_of_a_cluster_takes_is_sent_again_until_its_time_is_over() -> None:
    acks = window(timeout=1.0, attempts=2)
    plain = acks.add("s", b"1", b"", "", 0.0)
    marked = acks.add("s", b"2", b"h", "id", 0.0)
    for entry in (plain, marked):
        assert refuse(acks, entry.reply, 0.1)
    assert acks.full, "nothing overtakes them"
    assert acks.next_deadline() == 0.1 + RETRY_S
    assert acks.overdue(0.2) == ([], [])
    assert acks.overdue(0.4) == ([plain, marked], [])
    assert not acks.full
    for entry in (plain, marked):
        assert refuse(acks, entry.reply, 0.9)
    assert acks.overdue(1.2) == ([marked], [plain])
    assert isinstance(acks.why_failed(plain), NoRespondersError)
    assert marked.attempts == 2
    assert not refuse(acks, marked.reply, 2.3)


def test_what_is_being_stored_is_sent_again() -> None:
    acks = window(timeout=1.0, attempts=2)
    marked = acks.add("s", b"2", b"h", "id", 0.0)
    error = '{"code":409,"err_code":10158,"description":"duplicate message id is in process"}'
    settled = acks.settle(answer(marked.reply, b'{"error":%s}' % error.encode()))
    assert settled is not None
    entry, refusal = settled
    assert isinstance(refusal, ApiError)
    assert acks.bear(entry, refusal, 0.1, clustered=False)
    assert acks.overdue(0.1 + RETRY_S) == ([marked], [])
    assert acks.settle(answer(marked.reply)) is not None
    assert len(acks) == 0
