"""Reading ranges in bulk while messages come and go, against every server there is: what stays is
read, once and in order, whatever the server counts as pending."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton import ConsumerConfig, StreamConfig
from pelton.client.sync.columns import read_range
from pelton.client.sync.gets import read_stored
from pelton.errors import ApiError, PermissionsViolationError, StreamNotFoundError
from pelton.sync import connect
from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync.jetstream import JetStream

pytestmark = pytest.mark.peer
COUNT = 300
_names = itertools.count(1)


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def js(request: pytest.FixtureRequest) -> Iterator[JetStream]:
    """JetStream of each kind of server, also of old ones."""
    with running_server(request.param) as process, connect(process.url, timeout=5) as nc:
        yield nc.jetstream()


class Held:
    """A stream of ``COUNT`` messages on four subjects, and which of them it has."""

    def __init__(self, js: JetStream) -> None:
        self.js = js
        self.name = f"R{next(_names)}"
        self.low = self.name.lower()
        config = StreamConfig(name=self.name, subjects=[f"{self.low}.>"], storage="memory")
        js.create_stream(config)
        self.seqs: set[int] = set()
        self.last = 0
        self.publish(COUNT)

    def change(self, what: str, number: int) -> None:
        """Do that, as far as the server lets us; ask it what it has then. Old ones refuse a purge up
        to a hole, and take one up to the first message for one of all.
        """
        with contextlib.suppress(ApiError):
            getattr(self, what)(number)
        self.look()

    def look(self) -> None:
        state = self.js.stream_info(self.name, deleted_details=True).state
        self.last = state.last_seq
        self.seqs = set(range(state.first_seq, state.last_seq + 1)) - set(state.deleted)
        if len(self.seqs) > state.messages:  # old servers do not name the last one
            self.seqs.discard(state.last_seq)
        assert len(self.seqs) == state.messages

    def publish(self, count: int) -> None:
        with self.js.publisher() as publisher:
            for seq in range(self.last + 1, self.last + count + 1):
                publisher.publish(f"{self.low}.{seq % 4}", b"%d" % seq)
        self.look()

    def delete(self, seq: int) -> None:
        self.js.delete_message(self.name, seq, erase=False)

    def delete_run(self, seq: int) -> None:
        for each in range(seq, min(seq + 7, self.last + 1)):
            if each in self.seqs:
                self.delete(each)

    def purge(self, seq: int) -> None:
        self.js.purge_stream(self.name, seq=seq)

    def purge_subject(self, seq: int) -> None:
        self.js.purge_stream(self.name, filter_subject=f"{self.low}.{seq % 4}")

    def purge_but(self, seq: int) -> None:
        self.js.purge_stream(self.name, keep=seq % 50 + 1)


changes = st.tuples(
    st.sampled_from(["publish", "delete", "delete_run", "purge", "purge_subject", "purge_but"]),
    st.integers(1, COUNT),
)


@settings(max_examples=length(15, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.lists(changes, max_size=4),
    during=st.dictionaries(st.integers(0, 25), changes, max_size=6),
    start=st.integers(1, COUNT),
    count=st.integers(1, COUNT),
    tokens=st.sampled_from([(), (1,), (1, 2)]),
    singly=st.booleans(),
)
def test_what_stays_is_read_once(js, before, during, start, count, tokens, singly):
    if len(tokens) > 1 and not singly and not js.client.server_info.version_at_least(2, 10):
        tokens = tokens[:1]
    held = Held(js)
    try:
        for what, number in before:
            held.change(what, number)
        stop = min(start + count, held.last + 1)
        there = set(held.seqs)
        filters = [f"{held.low}.{token}" for token in tokens]
        read = read_stored if singly else read_range
        got: list[int] = []
        batches = read(js, held.name, start, stop, filter_subjects=filters, rows=10)
        for number, columns in enumerate(batches):
            got += columns.seq.view("q").tolist()
            if number in during:
                held.change(*during[number])
        assert got == sorted(set(got))
        wanted = {seq for seq in range(start, stop) if not tokens or seq % 4 in tokens}
        assert there & held.seqs & wanted <= set(got) <= there & wanted
    finally:
        js.delete_stream(held.name)


CHANGES = {
    "purge": 200,
    "purge_subject": 1,
    "purge_but": 70,
    "delete_run": 150,
    "publish": 60,
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("tokens", [(), (1,), (2,)])
def test_a_count_that_is_wrong_ends_nothing(js, what, tokens):
    """Servers before 2.10 may say after a purge that nothing is pending when much is."""
    for at in range(0, 28, length(9, 3)):
        held = Held(js)
        there = set(held.seqs)
        filters = [f"{held.low}.{token}" for token in tokens]
        got: list[int] = []
        batches = read_range(js, held.name, 1, 301, filter_subjects=filters, rows=10)
        for number, columns in enumerate(batches):
            got += columns.seq.view("q").tolist()
            if number == at:
                held.change(what, CHANGES[what])
        assert got == sorted(set(got))
        wanted = {seq for seq in there if not tokens or seq % 4 in tokens}
        assert held.seqs & wanted <= set(got) <= wanted
        js.delete_stream(held.name)


def test_nothing_is_taken_from_a_work_queue(js):
    name = f"Q{next(_names)}"
    config = StreamConfig(name=name, subjects=[f"{name}.>"], retention="workqueue")
    js.create_stream(config)
    js.create_consumer(name, ConsumerConfig(durable_name="worker", ack_policy="explicit"))
    with js.publisher() as publisher:
        for number in range(1000):
            publisher.publish(f"{name}.{number % 3}", b"x" * 2000, headers={"N": str(number)})
    js.delete_message(name, 500)
    got = [row for columns in read_stored(js, name, 1, 1001, rows=100) for row in columns.rows()]
    assert [row[0] for row in got] == [seq for seq in range(1, 1001) if seq != 500]
    assert {row[2] for row in got} == {f"{name}.{token}" for token in range(3)}
    assert got[7][3] == b"NATS/1.0\r\nN: 7\r\n\r\n"
    assert got[7][4] == b"x" * 2000
    assert got[7][1] == js.get_message(name, 8).timestamp_ns
    state = js.stream_info(name).state
    assert (state.messages, state.consumer_count) == (999, 1)
    assert js.consumer_info(name, "worker").num_pending == 999
    js.delete_stream(name)


def test_far_apart(js):
    held = Held(js)
    held.publish(4_000)
    js.purge_stream(held.name, filter_subject=f"{held.low}.1")
    js.purge_stream(held.name, filter_subject=f"{held.low}.2")
    js.purge_stream(held.name, filter_subject=f"{held.low}.3")
    for seq in range(4, 4_001, 4):
        if seq not in (4, 8, 2_000):
            js.delete_message(held.name, seq, erase=False)
    asked = []
    ask = js.get_message

    def counted(*given, **more):
        asked.append(given)
        return ask(*given, **more)

    js.get_message = counted  # type: ignore[method-assign]  # only counted
    try:
        got = [row[0] for columns in read_stored(js, held.name, 1, 4_301) for row in columns.rows()]
    finally:
        del js.get_message
    assert got == [4, 8, 2_000, *range(4_004, 4_301, 4)]
    assert 1 <= len(asked) < 10
    js.delete_stream(held.name)


def test_errors(js):
    with pytest.raises(StreamNotFoundError):
        list(read_stored(js, "NOBODY", 1, 10))
    assert list(read_stored(js, "NOBODY", 10, 10)) == []


@pytest.mark.parametrize("kind", available_servers((2, 9)))
def test_what_may_not_be_asked_is_said_at_once(kind, tmp_path):
    config = tmp_path / "narrow.conf"
    config.write_text(
        "authorization { users [ { user: a, password: b, permissions: {"
        ' publish: { deny: "$JS.API.STREAM.MSG.GET.*" } } } ] }\n'
    )
    process = ServerProcess(kind, arguments=["-c", str(config)])
    process.start()
    try:
        with connect(process.url, user="a", password="b", timeout=20) as nc:
            js = nc.jetstream()
            js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
            js.publish("s.a", b"x")
            with pytest.raises(PermissionsViolationError, match=r"STREAM\.MSG\.GET\.S"):
                list(read_stored(js, "S", 1, 2))
            with pytest.raises(PermissionsViolationError, match=r"STREAM\.MSG\.GET\.S"):
                js.get_message("S", 1)
    finally:
        process.remove()


def test_a_request_whose_bytes_are_used_up_exactly(js):
    """Servers end such a request without a word; what is still wanted must be asked for anew."""
    held = Held(js)
    sizes = range(2_000, 2_130)  # one of them fits exactly: a message takes less than 130 bytes
    for max_bytes in sizes:
        batches = read_range(js, held.name, 1, 41, rows=40, max_bytes=max_bytes, timeout=2)
        assert sum(columns.count for columns in batches) == 40, max_bytes
