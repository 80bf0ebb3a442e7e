"""The state of a server: configurations and figures of all streams and consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.api import ConsumerConfig, StreamConfig, decode_response, encode
from pelton.apply.together import one_by_one

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pelton.apply.model import Key
    from pelton.apply.together import Together
    from pelton.client.sync.jetstream import JetStream


@dataclass(frozen=True)
class LiveStream:
    """A stream of the server."""

    config: StreamConfig
    messages: int = 0


@dataclass(frozen=True)
class LiveConsumer:
    """A consumer of the server; ``delivered`` is the last sequence that it has delivered, 0 for none."""

    config: ConsumerConfig
    delivered: int = 0
    pending: int = 0


@dataclass(frozen=True)
class LiveEntry:
    """The value of a key, and the revision at which it was stored."""

    value: bytes
    revision: int


@dataclass
class Live:
    """Everything that a server has."""

    streams: dict[str, LiveStream] = field(default_factory=dict)
    consumers: dict[Key, LiveConsumer] = field(default_factory=dict)
    entries: dict[Key, LiveEntry] = field(default_factory=dict)
    """The values of those keys that were asked for and are there, by bucket and key."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Streams that the server cannot describe, with the reason."""

    def keep_streams(self, names: Collection[str]) -> None:
        """Forget all streams but these, and the consumers of those forgotten."""
        self.streams = {name: each for name, each in self.streams.items() if name in names}
        self.consumers = {key: each for key, each in self.consumers.items() if key[0] in names}

    def consumers_of(self, stream: str) -> list[Key]:
        """The consumers of a stream, by name."""
        return sorted(key for key in self.consumers if key[0] == stream)


def inspect(
    jetstream: JetStream, entries: Iterable[Key] = (), *, together: Together = one_by_one
) -> Live:
    """Ask a server for all streams and consumers, and for the values of ``entries`` (bucket, key).

    ``together`` calls a function for each of some items, one by one or several at a time.
    """
    listing = jetstream.stream_listing()
    live = Live(unavailable=dict(listing.unavailable))
    consumed = []
    for info in listing.found:
        config = decode_response(StreamConfig, encode(info.config))
        live.streams[config.name] = LiveStream(config, info.state.messages)
        if info.state.consumer_count:
            consumed.append(config.name)
    listed = together(lambda stream: list(jetstream.consumers(stream)), consumed)
    for name, found in zip(consumed, listed, strict=True):
        for each in found:
            if each.config is not None and not _servers_own(each.name, each.config.sourcing):
                live.consumers[name, each.name] = LiveConsumer(
                    decode_response(ConsumerConfig, encode(each.config)),
                    each.delivered.stream_seq if each.delivered.consumer_seq else 0,
                    each.num_ack_pending,
                )
    _inspect_entries(jetstream, live, entries, together)
    return live


def _servers_own(name: str, sourcing: bool) -> bool:
    """Whether a server has made a consumer for a stream that copies this one."""
    return sourcing and name.startswith("JS_SRC_")


def inspect_buckets(jetstream: JetStream, live: Live) -> None:
    """Ask for all entries of all key-value buckets: of each bucket as they were at one moment."""
    for name in live.streams:
        if name.startswith("KV_"):
            bucket = name.removeprefix("KV_")
            for key, found in jetstream.key_value(bucket).snapshot().items():
                live.entries[bucket, key] = LiveEntry(found.data, found.revision)


def _inspect_entries(
    jetstream: JetStream, live: Live, entries: Iterable[Key], together: Together
) -> None:
    wanted: dict[str, list[str]] = {}
    for bucket, key in entries:
        if f"KV_{bucket}" in live.streams:
            wanted.setdefault(bucket, []).append(key)
    for bucket, keys in wanted.items():
        got = together(jetstream.key_value(bucket).get, keys)
        for key, found in zip(keys, got, strict=True):
            if found is not None:
                live.entries[bucket, key] = LiveEntry(found.data, found.revision)
