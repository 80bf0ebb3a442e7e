"""/metrics: metrics for Prometheus, read from the server at each request.

METRICS lists all of them; the reference page and the alert rules are checked against it. Series of
streams and consumers are bounded: the first STREAMS and CONSUMERS by name, fewer with the arguments
``streams`` and ``consumers`` (0: none).
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from pelton.core.base.clock import SteadyClock
from pelton.server.http import Answer
from pelton.server.monitor.accstatz import connections_by_account, statistics
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState
from pelton.server.monitor.slices import Pace, Slices
from pelton.server.settings import COMPATIBLE_VERSION
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from pelton.api.streams import StreamSourceInfo
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry
    from pelton.server.jetstream import JetStream

STREAMS = 1000
CONSUMERS = 5000


class Kind(NamedTuple):
    """One metric: its name without prefix, and its description. A counter's name gets ``_total``."""

    name: str
    counter: bool
    text: str
    labels: tuple[str, ...] = ()


_A = ("account",)
_S = ("account", "stream")
_C = ("account", "stream", "consumer")
_O = (*_S, "origin")

METRICS = (
    Kind(
        "info",
        False,
        "Always 1; the labels identify the server.",
        ("server_id", "server_name", "version"),
    ),
    Kind("start_time_seconds", False, "When the server started, in seconds since 1970."),
    Kind(
        "clock_offset_seconds",
        False,
        "How far the machine's clock is ahead of the server's, which cannot jump.",
    ),
    Kind("config_load_time_seconds", False, "When the configuration was read."),
    Kind("resident_memory_bytes", False, "Memory of the process."),
    Kind("cpu_seconds", True, "Processor time of the process."),
    Kind("open_files", False, "File descriptors in use."),
    Kind("connections", False, "Open connections of clients and leaf nodes."),
    Kind("max_connections", False, "The limit of open connections."),
    Kind("accepted_connections", True, "Connections since the start."),
    Kind("subscriptions", False, "Subscriptions of all accounts."),
    Kind("received_messages", True, "Messages from connections."),
    Kind("received_bytes", True, "Bytes of these messages."),
    Kind("sent_messages", True, "Messages to connections."),
    Kind("sent_bytes", True, "Bytes of these messages."),
    Kind("pending_bytes", False, "Output that waits for clients to read it."),
    Kind("pending_bytes_max", False, "Output that waits for the slowest client."),
    Kind("slow_consumers", True, "Connections closed because they did not read."),
    Kind("stale_connections", True, "Connections closed because they did not answer pings."),
    Kind("stalled_clients", True, "Times a publisher waited for a slow subscriber."),
    Kind("turns", True, "Turns of the server's event loop."),
    Kind("commits", True, "Times that a stream wrote accepted messages."),
    Kind("fsyncs", True, "Times that a file was synced to the disk."),
    Kind("http_requests", True, "Requests to monitoring.", ("path",)),
    Kind("account_connections", False, "Open connections of clients.", _A),
    Kind("account_leafnodes", False, "Open connections of leaf nodes.", _A),
    Kind("account_subscriptions", False, "Subscriptions.", _A),
    Kind("account_received_messages", True, "Messages from connections.", _A),
    Kind("account_received_bytes", True, "Bytes of these messages.", _A),
    Kind("account_sent_messages", True, "Messages to connections.", _A),
    Kind("account_sent_bytes", True, "Bytes of these messages.", _A),
    Kind("account_slow_consumers", True, "Connections closed because they did not read.", _A),
    Kind("jetstream_enabled", False, "1 when JetStream is on."),
    Kind("jetstream_max_memory_bytes", False, "Memory that streams may use."),
    Kind("jetstream_max_storage_bytes", False, "Disk that streams may use."),
    Kind("jetstream_memory_bytes", False, "Bytes of streams in memory.", _A),
    Kind("jetstream_storage_bytes", False, "Bytes of streams on disk.", _A),
    Kind("jetstream_streams", False, "Streams.", _A),
    Kind("jetstream_consumers", False, "Consumers.", _A),
    Kind("jetstream_api_requests", True, "Requests to the JetStream API.", _A),
    Kind("jetstream_api_errors", True, "Requests that were answered with an error.", _A),
    Kind("jetstream_streams_hidden", False, "Streams without series."),
    Kind("jetstream_consumers_hidden", False, "Consumers without series."),
    Kind("stream_messages", False, "Messages in the stream.", _S),
    Kind("stream_bytes", False, "Bytes of these messages.", _S),
    Kind("stream_first_sequence", False, "Sequence of the first message.", _S),
    Kind("stream_last_sequence", False, "Sequence of the last message.", _S),
    Kind("stream_consumers", False, "Consumers of the stream.", _S),
    Kind("stream_max_bytes", False, "The limit of bytes; missing if there is none.", _S),
    Kind("stream_write_error", False, "1 while the stream cannot be written.", _S),
    Kind("stream_lag", False, "Messages of the origin that are still to copy.", _O),
    Kind(
        "stream_origin_silence_seconds",
        False,
        "Time since the origin of a mirror or source was last heard from; +Inf: never.",
        _O,
    ),
    Kind("stream_origin_error", False, "1 while the origin cannot be followed.", _O),
    Kind("consumer_pending", False, "Messages that are not delivered yet.", _C),
    Kind("consumer_ack_pending", False, "Delivered messages without an ack.", _C),
    Kind(
        "consumer_redelivered", False, "Messages of these that were delivered more than once.", _C
    ),
    Kind("consumer_waiting", False, "Pull requests that wait for messages.", _C),
    Kind("consumer_lag", False, "Messages that are not acknowledged: pending and ack pending.", _C),
    Kind("consumer_delivered_sequence", False, "The stream sequence that was last delivered.", _C),
    Kind(
        "consumer_ack_floor_sequence",
        False,
        "All messages up to this stream sequence are acknowledged.",
        _C,
    ),
    Kind("consumer_last_active_seconds", False, "When the consumer last delivered; 0: never.", _C),
)
PREFIX = "pelton_"
_SAMPLES = 100  # of a metric that are written at once


def answer(server_state: ServerState, query: Query) -> Slices[Answer]:
    """The text for Prometheus. Raises QueryError."""
    streams = query.number("streams") if query.text("streams") else STREAMS
    consumers = query.number("consumers") if query.text("consumers") else CONSUMERS
    families = yield from Collector(server_state, streams, consumers).families()
    text: list[bytes] = []
    pace = Pace()
    for family in families:
        for begin in range(0, max(len(family.samples), 1), _SAMPLES):
            part = Metric(family.name, family.documentation, family.type, family.unit)
            part.samples = family.samples[begin : begin + _SAMPLES]
            written = generate_latest(_Family(part))
            if begin:  # only the first part has the two lines of comments
                written = written.split(b"\n", 2)[2]
            text.append(written)
            if pace.over(10 + 5 * len(part.samples)):
                yield
    return Answer(200, CONTENT_TYPE_PLAIN_0_0_4, b"".join(text))


class _Family(CollectorRegistry):
    """A registry of one metric that is collected already."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(auto_describe=False)
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Collector:
    """Reads the server's state."""

    def __init__(
        self, server_state: ServerState, streams: int = STREAMS, consumers: int = CONSUMERS
    ) -> None:
        """At most that many streams and consumers have their own series."""
        self._server_state = server_state
        self._streams = max(0, min(streams, STREAMS))
        self._consumers = max(0, min(consumers, CONSUMERS))
        self._families: dict[str, Metric] = {}
        self._pace = Pace()

    def families(self) -> Slices[list[Metric]]:
        """Every metric, also those without a series."""
        self._families = {}
        for kind in METRICS:
            family = CounterMetricFamily if kind.counter else GaugeMetricFamily
            self._families[kind.name] = family(PREFIX + kind.name, kind.text, labels=kind.labels)
        self._process()
        self._server()
        yield
        yield from self._accounts()
        yield from self._jetstream()
        return list(self._families.values())

    def _put(self, name: str, value: float, *labels: str) -> None:
        family = self._families[name]
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)

    def _process(self) -> None:
        server_state = self._server_state
        self._put("info", 1, server_state.server_id, server_state.server_name, COMPATIBLE_VERSION)
        self._put("start_time_seconds", server_state.start_ns / SECOND_NS)
        clock = server_state.reactor.clock
        offset_ns = clock.offset_ns() if isinstance(clock, SteadyClock) else 0
        self._put("clock_offset_seconds", offset_ns / SECOND_NS)
        loaded_ns = server_state.loaded_ns or server_state.start_ns
        self._put("config_load_time_seconds", loaded_ns / SECOND_NS)
        self._put("resident_memory_bytes", server_state.memory_bytes())
        self._put("cpu_seconds", time.process_time())
        with contextlib.suppress(OSError):  # without /proc the metric has no value
            self._put("open_files", len(os.listdir("/proc/self/fd")))

    def _server(self) -> None:
        server_state, reactor, clients = (
            self._server_state,
            self._server_state.reactor,
            self._server_state.clients,
        )
        pending = [each.pending_bytes() for each in reactor.all_connections()]
        values = {
            "connections": clients.open,
            "max_connections": server_state.settings.max_connections,
            "accepted_connections": clients.total,
            "subscriptions": server_state.subscriptions(),
            "received_messages": reactor.in_msgs,
            "received_bytes": reactor.in_bytes,
            "sent_messages": reactor.out_msgs,
            "sent_bytes": reactor.out_bytes,
            "pending_bytes": sum(pending),
            "pending_bytes_max": max(pending, default=0),
            "slow_consumers": reactor.slow_consumers,
            "stale_connections": clients.stale,
            "stalled_clients": reactor.stalls,
            "turns": reactor.turns,
            "commits": reactor.commit_runs,
            "fsyncs": reactor.sync_runs,
        }
        for name, value in values.items():
            self._put(name, value)
        for path, count in sorted(server_state.requests.items()):
            self._put("http_requests", count, path)

    def _accounts(self) -> Slices[None]:
        by_account = connections_by_account(self._server_state)
        yield
        for account in self._server_state.accounts():
            name = account.name
            connections = by_account.get(name, [])
            if self._pace.over(20 + len(connections)):
                yield
            found = statistics(self._server_state, account, connections)
            self._put("account_connections", found["conns"], name)
            self._put("account_leafnodes", found["leafnodes"], name)
            self._put("account_subscriptions", found["num_subscriptions"], name)
            for way in ("received", "sent"):
                self._put(f"account_{way}_messages", found[way]["msgs"], name)
                self._put(f"account_{way}_bytes", found[way]["bytes"], name)
            self._put("account_slow_consumers", found["slow_consumers"], name)

    # -- JetStream

    def _jetstream(self) -> Slices[None]:
        jetstream = self._server_state.jetstream()
        self._put("jetstream_enabled", jetstream is not None)
        if jetstream is None:
            return
        config = jetstream.configuration()
        self._put("jetstream_max_memory_bytes", config["max_memory"])
        self._put("jetstream_max_storage_bytes", config["max_storage"])
        for account in jetstream.accounts():
            name = account.name
            consumers = sum(len(entry.consumers) for entry in account.streams.values())
            self._put("jetstream_memory_bytes", account.memory.used, name)
            self._put("jetstream_storage_bytes", account.storage.used, name)
            self._put("jetstream_streams", len(account.streams), name)
            self._put("jetstream_consumers", consumers, name)
            self._put("jetstream_api_requests", account.api_total, name)
            self._put("jetstream_api_errors", account.api_errors, name)
            if self._pace.over(20):
                yield
        yield from self._assets(jetstream)

    def _assets(self, jetstream: "JetStream") -> Slices[None]:
        streams = sorted(
            (
                (account, entry)
                for account in jetstream.accounts()
                for entry in account.streams.values()
            ),
            key=lambda each: (each[0].name, each[1].config.name),
        )
        shown = streams[: self._streams]
        told = 0
        for account, entry in shown:
            if self._pace.over(20):
                yield
            if account.streams.get(entry.config.name) is entry:
                self._stream(account, entry)
                told += yield from self._consumers_of(account, entry, self._consumers - told)
        total = sum(len(entry.consumers) for _, entry in streams)
        self._put("jetstream_streams_hidden", len(streams) - len(shown))
        self._put("jetstream_consumers_hidden", total - told)

    def _stream(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        labels = (account.name, entry.config.name)
        log = entry.core.log
        self._put("stream_messages", log.msgs, *labels)
        self._put("stream_bytes", log.bytes, *labels)
        self._put("stream_first_sequence", log.first_seq, *labels)
        self._put("stream_last_sequence", log.last_seq, *labels)
        self._put("stream_consumers", len(entry.consumers), *labels)
        if entry.config.max_bytes > 0:
            self._put("stream_max_bytes", entry.config.max_bytes, *labels)
        self._put("stream_write_error", bool(entry.core.failure), *labels)
        if entry.upstreams is not None:
            self._origins(entry.upstreams.infos(self._server_state.now_ns), labels)

    def _origins(self, infos: "list[StreamSourceInfo]", labels: tuple[str, str]) -> None:
        """The origins of a stream; sources of the same origin are shown as one."""
        found: dict[str, tuple[int, float, bool]] = {}
        for each in infos:
            name = f"{each.name} {each.external.api}" if each.external is not None else each.name
            lag, silence, wrong = found.get(name, (0, 0.0, False))
            silent = each.active / SECOND_NS if each.active >= 0 else math.inf
            found[name] = lag + each.lag, max(silence, silent), wrong or each.error is not None
        for name, (lag, silence, wrong) in found.items():
            self._put("stream_lag", lag, *labels, name)
            self._put("stream_origin_silence_seconds", silence, *labels, name)
            self._put("stream_origin_error", wrong, *labels, name)

    def _consumers_of(
        self, account: "JetStreamAccount", entry: "StreamEntry", room: int
    ) -> Slices[int]:
        """Returns the number of consumers shown."""
        chosen = sorted(entry.consumers.values(), key=lambda each: each.name)[:room]
        for each in chosen:
            if self._pace.over(20):
                yield
            if entry.consumers.get(each.name) is not each:
                continue
            labels = (account.name, entry.config.name, each.name)
            state = each.core.state()
            redelivered = 0 if each.config.max_deliver == 1 else state.num_redelivered
            values = {
                "pending": state.num_pending,
                "ack_pending": state.num_ack_pending,
                "redelivered": redelivered,
                "waiting": 0 if each.config.deliver_subject else state.num_waiting,
                "lag": state.num_pending + state.num_ack_pending,
                "delivered_sequence": state.delivered_stream_seq,
                "ack_floor_sequence": state.floor_stream_seq,
                "last_active_seconds": state.delivered_last_ns / SECOND_NS,
            }
            for name, value in values.items():
                self._put(f"consumer_{name}", value, *labels)
        return len(chosen)
