"""The shadow of a query, on every server there is: where its floor is, and what it never does."""

import contextlib
import time
import warnings
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.api.times import format_time
from pelton.client.base.models import ConsumerConfig, StreamConfig
from pelton.client.sync import connect
from pelton.core.protocol.subjects import matches
from pelton.errors import ConsumerNotFoundError, MessageNotFoundError, PeltonTimeoutError
from pelton.spark.connection import forget_client
from pelton.spark.reading import streaming
from pelton.spark.reading.offsets import Offset
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.streaming import JetStreamStreamReader
from pelton.spark.servers import Servers
from pelton.spark.watching import lag, lag_moves
from pelton.spark.watching.lag import Shadow, ShadowError
from tests.peers import available_servers, start_server, version_of
from tests.ways import length

pytestmark = pytest.mark.peer
names = count(1)


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def server(request):
    started = start_server(request.param)
    yield started
    forget_client(Servers(urls=(started.url,)))
    started.remove()


@pytest.fixture(scope="module")
def js(server):
    with connect(server.url) as client:
        yield client.jetstream()


class Read:
    """A stream, and a query of it as far as its commits go."""

    def __init__(self, js, server, retention="limits", filters=()):
        self.js = js
        self.name = f"S{next(names)}"
        self.filters = tuple(f"{self.name}.{token}" for token in filters)
        self.servers = Servers(urls=(server.url,))
        self.retention = retention
        self.create()
        self.shadow = Shadow(self.servers, "query", self.filters)

    def create(self):
        subjects = [f"{self.name}.>"]
        self.js.create_stream(
            StreamConfig(
                name=self.name, subjects=subjects, storage="memory", retention=self.retention
            )
        )

    def fill(self, number):
        for index in range(number):
            self.js.publish(f"{self.name}.{'abc'[index % 3]}", b"x")

    @property
    def state(self):
        return self.js.stream_info(self.name).state

    @property
    def born(self):
        return format_time(self.js.stream_info(self.name).created)

    def commit(self, seq):
        self.shadow.advance({self.name: Offset(self.name, seq, self.born)})

    def restart(self):
        """Another process of the same query."""
        self.shadow = Shadow(self.servers, "query", self.filters)

    @property
    def info(self):
        return self.js.consumer_info(self.name, "query")

    @property
    def lag(self):
        """What the server counts as not read yet."""
        info = self.info
        return info.num_pending + info.num_ack_pending

    @property
    def effective(self):
        """The filters that the server took."""
        config = self.info.config
        return config.filter_subjects or [config.filter_subject or ">"]

    def held(self):
        """The sequences in the stream, with their subjects."""
        found = {}
        for seq in range(max(1, self.state.first_seq), self.state.last_seq + 1):
            with contextlib.suppress(MessageNotFoundError):
                found[seq] = self.js.get_message(self.name, seq).subject
        return found

    def check(self, committed):
        """The floor is not ahead, and what is left to read is what the server counts."""
        assert self.info.ack_floor.stream_seq <= committed
        left = [
            seq
            for seq, subject in self.held().items()
            if seq > committed and any(matches(subject, one) for one in self.effective)
        ]
        # A server counts what was published a moment later.
        deadline = time.monotonic() + 5
        while self.lag != len(left) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert self.lag == len(left)
        return len(left)


SHAPES = [
    (retention, filters)
    for retention in ("limits", "interest")
    for filters in ((), ("a",), ("a", "b"), (">", "a"))
]


@pytest.mark.parametrize(("retention", "filters"), SHAPES)
def test_the_floor_follows_and_the_server_counts_what_is_left(js, server, retention, filters):
    read = Read(js, server, retention, filters)
    read.commit(0)
    read.check(0)
    read.fill(30)
    for committed in (1, 2, 10, 10, 23):
        read.commit(committed)
        assert read.check(committed) > 0
    read.fill(3)
    last = {"a": 31, "b": 32}.get(read.effective[-1].partition(".")[2], 33)
    read.commit(last)
    assert read.check(last) == 0
    assert read.info.ack_floor.stream_seq == last
    assert read.shadow.failures == 0
    assert (read.state.messages == 0) == (retention == "interest")


@pytest.mark.parametrize("retention", ["limits", "interest"])
@settings(max_examples=length(6, 12), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    filters=st.sampled_from([(), ("a",), ("b", "c")]),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("fill"), st.integers(1, 12)),
            st.tuples(st.just("commit"), st.integers(0, 100)),
            st.sampled_from([("restart", 0), ("delete", 0), ("older", 40)]),
        ),
        max_size=10,
    ),
)
def test_whatever_happens_the_floor_is_never_ahead(js, server, retention, filters, steps):
    read = Read(js, server, retention, filters)
    committed = 0
    read.commit(0)
    for step, number in steps:
        if step == "fill":
            read.fill(number)
        elif step == "commit":
            committed += (read.state.last_seq - committed) * number // 100
            read.commit(committed)
        elif step == "restart":
            read.restart()
            read.commit(committed)
        elif step == "older":  # a restored copy of the checkpoint
            committed = committed * number // 100
            read.restart()
            read.commit(committed)
        elif retention == "limits":  # on the other an operator drops what was not read
            js.delete_consumer(read.name, "query")
            read.restart()
            read.commit(committed)
        read.check(committed)
    assert read.shadow.failures == 0
    js.delete_stream(read.name)


def test_a_query_that_starts_later_has_a_shadow_that_does(js, server):
    read = Read(js, server)
    read.fill(10)
    read.commit(7)
    assert read.info.ack_floor.stream_seq == 7
    assert read.check(7) == 3


def test_messages_a_query_has_not_read_stay(js, server):
    read = Read(js, server, "interest")
    read.commit(0)
    read.fill(20)
    read.commit(12)
    assert list(read.held()) == list(range(13, 21))
    read.restart()
    read.commit(5)
    assert list(read.held()) == list(range(13, 21))
    read.check(12)


def test_a_stream_made_again_gets_another_one(js, server):
    read = Read(js, server)
    read.fill(20)
    read.commit(15)
    js.delete_stream(read.name)
    old = Offset(read.name, 16, format_time(0))
    read.create()
    read.fill(5)
    read.shadow.advance({read.name: old})  # what the query still thinks
    with pytest.raises(ConsumerNotFoundError):
        js.consumer_info(read.name, "query")
    read.commit(2)
    assert read.check(2) == 3
    assert read.shadow.failures == 0


def test_a_durable_that_an_operator_deletes_comes_back(js, server, monkeypatch):
    monkeypatch.setattr(lag, "REQUEST_SECONDS", 0.3)
    read = Read(js, server)
    read.fill(9)
    read.commit(3)
    js.delete_consumer(read.name, "query")
    read.commit(6)
    assert read.check(6) == 3
    assert read.shadow.failures == 0


def test_filters_of_a_query_may_change(js, server):
    read = Read(js, server, filters=("a",))
    read.fill(9)
    read.commit(3)
    read.filters = (f"{read.name}.b",)
    read.restart()
    read.commit(4)
    assert read.info.config.filter_subject == f"{read.name}.b"
    assert read.check(4) == 2


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (ConsumerConfig(durable_name="query", ack_policy="explicit"), "was not made for a query"),
        (
            ConsumerConfig(
                durable_name="query",
                ack_policy="all",
                description=lag_moves.DESCRIPTION,
                deliver_subject="to.somebody",
            ),
            "it must pull",
        ),
    ],
)
def test_a_consumer_of_another_kind_is_an_error_and_is_left_alone(js, server, config, problem):
    read = Read(js, server)
    read.fill(5)
    js.create_consumer(read.name, config)
    with pytest.raises(ShadowError, match=problem):
        read.commit(3)
    assert read.info.ack_floor.stream_seq == 0


def test_a_work_queue_is_refused(js, server):
    read = Read(js, server, "workqueue")
    with pytest.raises(ShadowError, match="is a work queue"):
        read.commit(0)


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_server_behind_another_that_knows_no_reset(js, server, monkeypatch, retention):
    asked = []

    def silent(jetstream, stream, name, after):
        asked.append(after)
        raise PeltonTimeoutError("no answer")

    monkeypatch.setattr(lag_moves, "takes_resets", lambda jetstream: True)
    monkeypatch.setattr(lag_moves, "reset", silent)
    read = Read(js, server, retention)
    read.commit(0)
    read.fill(9)
    for committed in (3, 5, 8):
        read.commit(committed)
        assert read.check(committed) == 9 - committed
    assert asked == [3]
    assert read.shadow.failures == 0


def test_a_slow_reset_is_waited_for_and_not_taken_for_an_older_server(js, server, monkeypatch):
    if server.kind == "nats-server" and version_of(server.kind) < (2, 14):
        pytest.skip("it has no resets")
    monkeypatch.setattr(lag, "PAUSE_SECONDS", 0.0)
    reset = lag_moves.reset
    read = Read(js, server)
    read.fill(9)
    read.commit(0)

    def late(jetstream, stream, name, after):
        reset(jetstream, stream, name, after)
        raise PeltonTimeoutError("no answer in time")

    def lost(jetstream, stream, name, after):
        raise PeltonTimeoutError("no answer")

    read.commit(1)
    monkeypatch.setattr(lag_moves, "reset", late)
    read.commit(2)
    assert read.info.ack_floor.stream_seq == 2
    monkeypatch.setattr(lag_moves, "reset", lost)
    with pytest.warns(UserWarning, match="could not be moved to 3"):
        read.commit(3)
    monkeypatch.setattr(lag_moves, "reset", reset)
    read.commit(4)
    assert read.check(4) == 5
    assert read.shadow.failures == 1


def commit_all(read, *sequences):
    for committed in sequences:
        read.commit(committed)


def test_failures_are_told_once_counted_and_caught_up(js, server, monkeypatch):
    monkeypatch.setattr(lag, "PAUSE_SECONDS", 0.0)
    read = Read(js, server)
    read.fill(10)
    read.commit(1)
    good, read.shadow.servers = read.servers, Servers(urls=("nats://127.0.0.1:1",))
    with pytest.warns(UserWarning, match=r"could not be moved to 2.*failures so far: 1") as told:
        commit_all(read, 2, 3, 4)
    assert len(told) == 1
    assert read.shadow.failures == 3
    read.shadow.servers = good
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read.commit(5)
    assert read.check(5) == 5
    monkeypatch.setattr(lag, "PAUSE_SECONDS", 3600.0)
    read.shadow.servers = Servers(urls=("nats://127.0.0.1:1",))
    with pytest.warns(UserWarning, match="failures so far: 4"):
        commit_all(read, 6, 7, 8)
    assert read.shadow.failures == 4  # no attempt for each batch


def test_moving_on_asks_once_and_standing_still_not_at_all(js, server, monkeypatch):
    read = Read(js, server)
    read.fill(50)
    read.commit(1)
    asked = 0
    client = read.shadow._jetstream().client
    request = client.request

    def counted(*given, **named):
        nonlocal asked
        asked += 1
        return request(*given, **named)

    monkeypatch.setattr(client, "request", counted)
    born = read.born
    offset = Offset(read.name, 40, born)
    for _ in range(5):
        read.shadow.advance({read.name: offset})
    assert asked == (1 if version_of(server.kind) >= (2, 14) or server.kind == "pelton" else 3)
    read.shadow.advance({read.name: Offset(read.name, 30, born)})
    assert read.info.ack_floor.stream_seq == 40


def reader_of(read, **given_options):
    """A streaming reader of the stream with a shadow; a new one is a new process of the query."""
    options = {
        "servers": read.servers.urls[0],
        "stream": read.name,
        "consumer": "query",
        "startingOffsets": "earliest",
        **({"subject": ",".join(read.filters)} if read.filters else {}),
        **{name: str(value) for name, value in given_options.items()},
    }
    return JetStreamStreamReader(parse_options(options, streaming=True))


def run_batches(read, reader, start, log):
    """Batches until there is nothing left, as Spark asks for them; ``log`` is what is committed."""
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert read.info.ack_floor.stream_seq <= log[-1]["seq"]
        if end == start:
            return start
        reader.commit(start)
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                read.rows += batch.column("seq").to_pylist()
        assert read.info.ack_floor.stream_seq <= log[-1]["seq"]
        log.append(end)  # the batch is in the commit log, the reader does not know yet
        start = end


@pytest.mark.parametrize(("retention", "filters"), [*SHAPES[:3], *SHAPES[4:7]])
def test_a_query_moves_its_shadow_and_reads_all_there_is(
    js, server, monkeypatch, retention, filters
):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    read = Read(js, server, retention, filters)
    read.rows = []
    reader = reader_of(read, maxOffsetsPerTrigger=4)
    log = [reader.initialOffset()]
    assert read.info.num_pending == 0
    wanted = []
    for _ in range(3):  # each a life of the query; it ends with a batch that only the log knows of
        first = read.state.last_seq + 1
        read.fill(9)
        wanted += [
            first + index for index in range(9) if not filters or "abc"[index % 3] in filters
        ]
        run_batches(read, reader, log[-1], log)
        reader = reader_of(read, maxOffsetsPerTrigger=4)
    assert read.rows == wanted
    reader.latestOffset(log[-1], reader.getDefaultReadLimit())
    read.check(log[-1]["seq"])
    assert reader._shadow.failures == 0


def test_several_streams_have_a_shadow_each(js, server, monkeypatch):
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    first, second = Read(js, server), Read(js, server)
    first.fill(5)
    second.fill(3)
    reader = reader_of(first, stream=f"{first.name},{second.name}")
    start = reader.initialOffset()
    assert (first.info.num_pending, second.info.num_pending) == (5, 3)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.commit(end)
    assert (first.info.num_pending, second.info.num_pending) == (0, 0)
    assert (first.info.ack_floor.stream_seq, second.info.ack_floor.stream_seq) == (5, 3)
