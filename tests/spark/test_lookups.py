"""What planning asks a real server."""

from datetime import UTC, datetime, timedelta

import pytest

from pelton.client.base.models import StreamConfig
from pelton.spark.connection import ReadError, forget_client
from pelton.spark.reading.lookups import Lookups
from pelton.spark.reading.options import parse_options
from pelton.sync import connect
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
    def end_of(asking):
        return asking.end(asking.states()[stream.name], asking._options.subjects)

    stream.fill(30)
    head = stream.name.lower()
    for given, end in (
        (f"{head}.1", 28),
        (f"{head}.1,{head}.2", 29),
        (f"{head}.*", 30),
        (f"{head}.none", 0),
        (",".join(f"{head}.{number}" for number in range(2, 20)), 30),  # what covers them
    ):
        asking = Lookups(stream.options(subject=given))
        assert end_of(asking) == end
    asking = Lookups(stream.options(subject=f"{head}.1"))
    assert end_of(asking) == 28
    stream.fill(1)
    assert end_of(asking) == 31
    every = Lookups(stream.options())
    assert end_of(every) == 31


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


def answering(own):
    """Start the server; it has answered a request of JetStream when this returns."""
    own.start()
    with connect(own.url, timeout=20) as client:
        client.jetstream().account_info()


def test_a_server_that_goes_is_waited_for_but_not_for_ever(server):
    own = ServerProcess(server.kind)
    answering(own)
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
        answering(own)
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


def test_the_sequence_at_a_time_of_a_work_queue(client, stream, server):
    name = f"{stream.name}_WQ"
    js = client.jetstream()
    js.create_stream(
        StreamConfig(name=name, subjects=["work.>"], storage="memory", retention="workqueue")
    )
    try:
        for number in range(12):
            js.publish(f"work.{number}", b"x")
        for seq in (1, 5, 6, 12):
            js.delete_message(name, seq)
        options = parse_options({"servers": server.url, "stream": name}, streaming=False)
        asking = Lookups(options)
        [state] = asking.states().values()
        left = [seq for seq in range(1, 13) if seq not in (1, 5, 6, 12)]
        for seq in left:
            stored_ns = js.get_message(name, seq).timestamp_ns
            # To the microsecond below, and to that above.
            at = datetime.fromtimestamp(stored_ns // 1_000_000_000, UTC).replace(
                microsecond=stored_ns // 1000 % 1_000_000
            )
            expected = next(
                each
                for each in left
                if js.get_message(name, each).timestamp_ns // 1000 * 1000
                >= stored_ns // 1000 * 1000
            )
            assert asking.sequence_at(state, at) == expected
            after = asking.sequence_at(state, at + timedelta(microseconds=1))
            later = [
                each
                for each in left
                if js.get_message(name, each).timestamp_ns >= stored_ns // 1000 * 1000 + 1000
            ]
            assert after == (later[0] if later else None)
    finally:
        js.delete_stream(name)
