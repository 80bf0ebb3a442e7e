"""The client for blocking code: ``connect``, and classes with the same names as those of ``pelton``.

Example::

    from pelton.sync import connect

    with connect("nats://127.0.0.1:4222") as nc:
        nc.publish("greetings.anna", b"hello")

Configurations, models and errors are in ``pelton``, for both clients.
"""

from pelton.exports import at_first_use

with at_first_use(globals()):
    from pelton.client.sync import connect as connect
    from pelton.client.sync.columns import ColumnReader as ColumnReader
    from pelton.client.sync.connection import Client as Client, StatusEvents as StatusEvents
    from pelton.client.sync.consumers import (
        Consumer as Consumer,
        OrderedConsumer as OrderedConsumer,
        PushConsumer as PushConsumer,
    )
    from pelton.client.sync.groups import (
        ElasticGroup as ElasticGroup,
        GroupMessages as GroupMessages,
        StaticGroup as StaticGroup,
    )
    from pelton.client.sync.jetstream import JetStream as JetStream
    from pelton.client.sync.keyvalue import KeyValue as KeyValue
    from pelton.client.sync.messages import Message as Message
    from pelton.client.sync.objectstore import ObjectStore as ObjectStore
    from pelton.client.sync.operations import (
        ConsumerMessages as ConsumerMessages,
        PushMessages as PushMessages,
    )
    from pelton.client.sync.publishing import (
        AtomicBatch as AtomicBatch,
        FastBatch as FastBatch,
        Publisher as Publisher,
    )
    from pelton.client.sync.services import (
        Request as Request,
        Service as Service,
        ServiceClient as ServiceClient,
        ServiceGroup as ServiceGroup,
    )
    from pelton.client.sync.stored import Counter as Counter
    from pelton.client.sync.subscription import Subscription as Subscription
    from pelton.client.sync.transactions import KeyTransaction as KeyTransaction
    from pelton.client.sync.watches import KeyWatch as KeyWatch, ObjectWatch as ObjectWatch
