"""What planning asks a real server."""

from datetime import UTC, datetime

import pytest

from penstock.spark.connection import ReadError, forget_client
from penstock.spark.lookups import Lookups
from penstock.spark.options import parse_options
from tests.peers import ServerProcess

pytestmark = pytest.mark.peer


def test_states_by_name_and_by_pattern(stream, family):
    stream.fill(3)
    stream.js.delete_message(stream.name, 1)
    family("B")
    named = Lookups(stream.options(stream=f"{stream.name},NOBODY")).states()
    assert list(named) == [stream.name]
    state = named[stream.name]
    assert (state.first_seq, state.last_seq, state.messages) == (2, 3, 2)
    assert state.born.startswith("20")
    listed = Lookups(stream.options(streamPattern=f"{stream.name}.*")).states(["NOBODY"])
    assert list(listed) == [stream.name, f"{stream.name}_B"]
    assert listed[stream.name] == state
    empty = listed[f"{stream.name}_B"]
    assert (empty.first_seq, empty.last_seq, empty.mean_bytes) == (1, 0, 1)


def test_a_list_that_misses_a_stream(stream, monkeypatch):
    """As one can that is given page by page while streams go."""
    options = stream.options(streamPattern=f"{stream.name}.*")
    monkeypatch.setattr(type(stream.js), "streams", lambda self, subject=None: [])
    assert Lookups(options).states() == {}
    assert list(Lookups(options).states([stream.name, "NOBODY"])) == [stream.name]


def test_the_end_of_subjects(stream):
    stream.fill(30)
    head = stream.name.lower()
    for given, end in (
        (f"{head}.1", 28),
        (f"{head}.1,{head}.2", 29),
        (f"{head}.*", 30),
        (f"{head}.none", 0),
    ):
        asking = Lookups(stream.options(subject=given))
        assert asking.end(asking.states()[stream.name]) == end
    asking = Lookups(stream.options(subject=f"{head}.1"))
    assert asking.end(asking.states()[stream.name]) == 28
    stream.fill(1)
    assert asking.end(asking.states()[stream.name]) == 31
    every = Lookups(stream.options())
    assert every.end(every.states()[stream.name]) == 31


def test_the_sequence_at_a_time(stream):
    before = datetime.now(UTC)
    stream.fill(3)
    asking = Lookups(stream.options())
    state = asking.states()[stream.name]
    for at, first in (
        (before.isoformat(), 1),
        ("2020-01-01T00:00:00+01:00", 1),
        ("1815-12-10T00:00:00Z", 1),
        ("2090-01-01T00:00:00Z", None),
        ("2500-01-01T00:00:00Z", None),
    ):
        assert asking.sequence_at(state, datetime.fromisoformat(at)) == first, at
    assert stream.js.consumers(stream.name) == []


def test_a_server_that_goes_is_waited_for_but_not_for_ever(server):
    own = ServerProcess(server.kind)
    own.start()
    try:
        options = parse_options(
            {"servers": own.url, "stream": "S", "retryTimeout": "1s", "requestTimeout": "1s"},
            streaming=True,
        )
        asking = Lookups(options)
        assert asking.states() == {}
        own.stop(kill=True)
        with pytest.raises(ReadError, match=r"cannot connect|stream S: "):
            asking.states()
        own.start()
        assert asking.states() == {}
        forget_client(options.servers)
    finally:
        own.remove()


def test_a_server_without_jetstream_is_told(server):
    own = ServerProcess(server.kind)
    own.arguments = ["-c", own.store + "/plain.conf"]
    with open(own.store + "/plain.conf", "w") as config:
        config.write("accounts { A { users [ {user: a, password: b} ] } }\nno_auth_user: a\n")
    own.start()
    try:
        options = parse_options({"servers": own.url, "stream": "S"}, streaming=True)
        with pytest.raises(ReadError) as caught:
            Lookups(options).states()
        assert "JetStream" in str(caught.value)
        assert "\n" not in str(caught.value)
        forget_client(options.servers)
    finally:
        own.remove()
