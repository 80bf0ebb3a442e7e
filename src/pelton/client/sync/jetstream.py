"""JetStream for blocking code: streams, consumers, publishing, pulling, push and ordered reading,
and reading in bulk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.arguments import checked
from ..base.steps import made
from ..consume.opening import Consumers
from ..groups.opening import ConsumerGroups
from ..jetstream.streams import PUSH_PENDING_BYTES_MAX, PUSH_PENDING_MESSAGES_MAX, Pushed, Streams
from ..keyvalue.managing import KeyValues
from ..objects.managing import Buckets
from .batches import AtomicBatch, FastBatch
from .bulk.columns import ColumnReader, read_range
from .consuming import Consumer, OrderedConsumer, PushConsumer
from .counters import Counter
from .messages import Message
from .publishing import Publisher
from .pulling import PullConsumer
from .running import Blocking, run
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.models import ConsumerConfig
    from .connection import Client
    from .groups import ElasticGroup, StaticGroup
    from .keyvalue import KeyValue
    from .objects import ObjectStore

__all__ = ["JetStream", "Publisher", "PullConsumer", "PushSubscription"]


class JetStream(
    Blocking,
    Streams[Message],
    Consumers[Consumer, PushConsumer],
    KeyValues["KeyValue[bytes]"],
    Buckets["ObjectStore"],
    ConsumerGroups["StaticGroup", "ElasticGroup"],
):
    """Streams, consumers and buckets over a connection; made by ``Client.jetstream``.

    Every call raises ApiError when the server refuses, PeltonTimeoutError without an answer, NoRespondersError
    without JetStream.

    ::

        js = nc.jetstream(timeout=10)
        js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_age="7d"))
        ack = js.publish("orders.new", b"42 bolts", msg_id="order-1")
    """

    client: Client

    _consumer_type = Consumer
    _push_consumer_type = PushConsumer

    counter = made(Counter)
    publisher = made(Publisher)
    atomic_batch = made(AtomicBatch)
    fast_batch = made(FastBatch)
    pull = made(PullConsumer)
    ordered_consumer = made(OrderedConsumer)
    column_reader = made(ColumnReader)
    read_columns = made(read_range)

    @checked
    def subscribe(
        self, stream: str, config: ConsumerConfig | None = None, *, queue: str = ""
    ) -> PushSubscription:
        """Create a push consumer and receive its messages.

        Without a config it is ephemeral, with explicit acks.
        """
        subscription = PushSubscription(
            self.client, PUSH_PENDING_MESSAGES_MAX, PUSH_PENDING_BYTES_MAX
        )
        subscription.info = run(self.client, self._pushing(stream, config, queue, subscription))
        return subscription

    def _bucket_type(self) -> Callable[..., KeyValue[bytes]]:
        from .keyvalue import KeyValue

        return KeyValue

    def _store_type(self) -> Callable[..., ObjectStore]:
        from .objects import ObjectStore

        return ObjectStore

    def _group_types(self) -> tuple[Callable[..., StaticGroup], Callable[..., ElasticGroup]]:
        from .groups import ElasticGroup, StaticGroup

        return StaticGroup, ElasticGroup


class PushSubscription(Pushed, Subscription):
    """Messages of a push consumer; heartbeats and flow control are answered on the way.

    Example::

        with js.subscribe("ORDERS") as subscription:
            for message in subscription:
                message.ack()
    """

    client: Client
