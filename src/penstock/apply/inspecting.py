"""What a server has: configurations and figures of all streams and consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.api import ConsumerConfig, StreamConfig, decode_response, encode

if TYPE_CHECKING:
    from penstock.apply.model import Key
    from penstock.client.blocking.jetstream import JetStream


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


@dataclass
class Live:
    """Everything that a server has."""

    streams: dict[str, LiveStream] = field(default_factory=dict)
    consumers: dict[Key, LiveConsumer] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    """Streams that the server cannot describe, with the reason."""

    def consumers_of(self, stream: str) -> list[Key]:
        """The consumers of a stream, by name."""
        return sorted(key for key in self.consumers if key[0] == stream)


def inspect(jetstream: JetStream) -> Live:
    """Ask a server for all streams and consumers."""
    listing = jetstream.stream_listing()
    live = Live(unavailable=dict(listing.unavailable))
    for info in listing.found:
        config = decode_response(StreamConfig, encode(info.config))
        live.streams[config.name] = LiveStream(config, info.state.messages)
        if not info.state.consumer_count:
            continue
        for each in jetstream.consumers(config.name):
            if each.config is not None:
                live.consumers[config.name, each.name] = LiveConsumer(
                    decode_response(ConsumerConfig, encode(each.config)),
                    each.delivered.stream_seq if each.delivered.consumer_seq else 0,
                    each.num_ack_pending,
                )
    return live
