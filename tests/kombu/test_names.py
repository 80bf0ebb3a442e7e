"""Queues and messages as subjects and payloads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.protocol.subjects import literal
from pelton.kombu.names import (
    HEADER,
    BrokerOptions,
    Names,
    eta_of,
    name_of,
    pack,
    priority_of,
    schedule_headers,
    token,
    unpack,
)
from tests.ways import length

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.text(min_size=1))
def test_any_name_is_one_token(name):
    assert name_of(token(name)) == name
    assert not set(token(name)) & set(". *>\t\r\n/\\")
    assert literal(Names("kombu").subject(name, 3, transient=False))


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_are_two_tokens(one, other):
    assert (token(one) == token(other)) == (one == other)


@settings(max_examples=length(20, 100))
@given(st.binary(), st.dictionaries(st.text(), JSON), st.dictionaries(st.text(), JSON))
def test_a_message_comes_back(body, headers, properties):
    message = {
        "body": body,
        "headers": headers,
        "properties": {**properties, "delivery_info": {"exchange": "x"}},
        "content-type": "application/data",
        "content-encoding": "binary",
    }
    data, packed = pack(message)
    assert unpack(data, packed[HEADER]) == message
    assert packed[HEADER].isascii()


def test_a_message_of_another_program_is_json():
    found = unpack(b"[1, 2]", None)
    assert found["body"] == b"[1, 2]"
    assert (found["content-type"], found["content-encoding"]) == ("application/json", "utf-8")


@pytest.mark.parametrize(
    ("given_priority", "found"), [(None, 0), (5, 5), ("7", 7), (99, 9), (-1, 0), ("high", 0)]
)
def test_priorities(given_priority, found):
    assert priority_of({"properties": {"priority": given_priority}}) == found


def test_the_highest_priority_comes_first():
    consumers = Names("k").consumers("q", priorities=True)
    assert [priority for _, priority in consumers] == list(range(9, -1, -1))
    assert Names("k").consumers("q", priorities=False) == [("q", "*")]


@pytest.mark.parametrize("eta", [None, "soon", 12, ""])
def test_what_is_no_eta(eta):
    assert eta_of({"headers": {"eta": eta}}) is None


def test_an_eta_without_a_zone_is_utc():
    assert eta_of({"headers": {"eta": "2026-11-23T10:00:00"}}) == datetime(
        2026, 11, 23, 10, tzinfo=UTC
    )


def test_a_schedule_is_as_exact_as_the_eta():
    eta = datetime(2026, 11, 23, 10, 0, 0, 123456, tzinfo=UTC)
    assert schedule_headers(eta, "k.queue.q.0") == {
        "Nats-Schedule": "@at 2026-11-23T10:00:00.123456Z",
        "Nats-Schedule-Target": "k.queue.q.0",
    }


def test_the_virtual_host_has_its_own_streams():
    assert BrokerOptions.of({}, "/").prefix == "kombu"
    assert BrokerOptions.of({"prefix": "shop"}, "/a.b").prefix == "shop-a%2Eb"
    assert (
        BrokerOptions.of({"max_retries": 3}).prefix == "kombu"
    )  # kombu's own options stay kombu's


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prefix": "a.b"}, "the prefix is no name of a stream: 'a.b'"),
        ({"storage": "paper"}, "storage is 'file' or 'memory', got 'paper'"),
        ({"ack_wait": 0.1}, "ack_wait is at least 1 second, got 0.1"),
    ],
)
def test_wrong_options(options, told):
    with pytest.raises(ValueError, match=told):
        BrokerOptions.of(options)
