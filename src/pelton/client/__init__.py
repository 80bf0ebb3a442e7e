"""The client for NATS and JetStream: ``connect`` for asyncio, ``connect_blocking`` for blocking code.

::

    aio/   blocking/                           shells: sockets, threads, time
    groups/                                    partitioned consumer groups
    consume/   keyvalue/   objects/            what users read and keep
    jetstream/   services/                     streams, publishing, pulling; endpoints
    session/                                   reconnects, requests, subscriptions
    protocol/   plans/                         one connection; the requests of JetStream's API
    base/                                      addresses, durations, messages, steps

A room imports only rooms below it. Below the shells is no I/O and no clock: a call is a generator of steps
(``base/steps.py``), which both shells carry out.

This package exports everything that a user needs. Names for asyncio are plain; names for blocking
code that would collide begin with ``Blocking``: ``Client`` and ``BlockingClient``, ``Message`` and
``BlockingMessage``.
"""

from typing import TYPE_CHECKING

from pelton.errors import (
    ApiError,
    AuthenticationError,
    BadBucketError,
    BatchEndedError,
    BucketExistsError,
    BucketNotFoundError,
    BucketReplacedError,
    CallbackFailedError,
    ClientInUseError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerBusyError,
    ConsumerDeletedError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    ContextError,
    DirectGetError,
    GroupChangedError,
    GroupError,
    GroupExistsError,
    GroupNotFoundError,
    InvalidBucketNameError,
    InvalidKeyError,
    InvalidStreamConfigError,
    InvalidSubjectError,
    InvalidValueError,
    JetStreamDisabledError,
    JetStreamUnavailableError,
    KeyExistsError,
    LinkNotFollowedError,
    MaximumConsumersError,
    MaximumStreamsError,
    MessageNotFoundError,
    MessageTooLargeError,
    NoRespondersError,
    NotClusteredError,
    NotEnabledError,
    NotJetStreamMessageError,
    NoValueError,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectReplacedError,
    OutputFullError,
    PayloadTooLargeError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    ProtocolError,
    PublishFailedError,
    PullError,
    ResourcesExceededError,
    RevisionConflictError,
    ServerError,
    ServiceError,
    SlowConsumerError,
    StreamExistsError,
    StreamNotFoundError,
    StreamSealedError,
    SubjectsOverlapError,
    WrongLastMessageIdError,
    WrongLastSequenceError,
    WrongStreamError,
)

from .base.addresses import Server, TlsOptions
from .base.durations import Duration, Moment, Nanoseconds
from .base.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    ExternalStream,
    Metadata,
    Placement,
    PubAck,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
    StreamInfo,
    StreamSource,
    StreamSourceConsumer,
    StreamState,
    SubjectTransform,
)
from .plans.jetstream import Headers, Listing, StoredMessage
from .plans.management import ConsumerPause
from .protocol.info import ServerInfo
from .protocol.options import ConnectOptions, Options
from .session.session import Stats
from .session.status import Status
from .sync import Client as BlockingClient
from .sync import connect_blocking
from .sync.messages import Message as BlockingMessage
from .sync.status import StatusEvents as BlockingStatusEvents
from .sync.subscription import Subscription as BlockingSubscription

if TYPE_CHECKING:
    from .aio import connect
    from .aio.batches import AtomicBatch, FastBatch
    from .aio.connection import Callback, Client
    from .aio.consuming import (
        Consumer,
        ConsumerMessages,
        OrderedConsumer,
        PushConsumer,
        PushMessages,
    )
    from .aio.counters import Counter
    from .aio.groups import ElasticGroup, GroupMessages, StaticGroup
    from .aio.jetstream import JetStream, PushSubscription
    from .aio.keyvalue import KeyTransaction, KeyValue, KeyWatch
    from .aio.messages import Message
    from .aio.objects import ObjectStore, ObjectWatcher
    from .aio.publishing import Publisher
    from .aio.pulling import PullConsumer
    from .aio.services import Request, Service, ServiceClient, ServiceGroup
    from .aio.status import StatusEvents
    from .aio.subscription import Subscription
    from .consume.events import ConsumerEvent
    from .groups.config import (
        ElasticGroupConfig,
        MemberMapping,
        PartitioningFilter,
        StaticGroupConfig,
    )
    from .jetstream.counters import CounterEntry
    from .jetstream.schedules import Schedule
    from .keyvalue.codecs import (
        Base64Keys,
        Base64Values,
        FilterableKeyCodec,
        KeyCodec,
        PathKeys,
        TypedValues,
        ValueCodec,
    )
    from .keyvalue.config import KeyValueConfig, KeyValueStatus
    from .keyvalue.entries import KvEntry
    from .keyvalue.many import KvSnapshot
    from .objects.models import ObjectInfo, ObjectLink, ObjectStoreConfig, ObjectStoreStatus
    from .services.models import (
        EndpointInfo,
        EndpointStats,
        ServiceConfig,
        ServiceInfo,
        ServicePing,
        ServiceStats,
    )
    from .sync.batches import AtomicBatch as BlockingAtomicBatch
    from .sync.batches import FastBatch as BlockingFastBatch
    from .sync.bulk.columns import ColumnReader
    from .sync.consuming import Consumer as BlockingConsumer
    from .sync.consuming import ConsumerMessages as BlockingConsumerMessages
    from .sync.consuming import OrderedConsumer as BlockingOrderedConsumer
    from .sync.consuming import PushConsumer as BlockingPushConsumer
    from .sync.consuming import PushMessages as BlockingPushMessages
    from .sync.counters import Counter as BlockingCounter
    from .sync.groups import ElasticGroup as BlockingElasticGroup
    from .sync.groups import GroupMessages as BlockingGroupMessages
    from .sync.groups import StaticGroup as BlockingStaticGroup
    from .sync.jetstream import (
        JetStream as BlockingJetStream,
    )
    from .sync.jetstream import (
        PushSubscription as BlockingPushSubscription,
    )
    from .sync.keyvalue import KeyTransaction as BlockingKeyTransaction
    from .sync.keyvalue import KeyValue as BlockingKeyValue
    from .sync.keyvalue import KeyWatch as BlockingKeyWatch
    from .sync.objects import ObjectStore as BlockingObjectStore
    from .sync.objects import ObjectWatcher as BlockingObjectWatcher
    from .sync.publishing import Publisher as BlockingPublisher
    from .sync.pulling import PullConsumer as BlockingPullConsumer
    from .sync.services import Request as BlockingRequest
    from .sync.services import Service as BlockingService
    from .sync.services import ServiceClient as BlockingServiceClient
    from .sync.services import ServiceGroup as BlockingServiceGroup

# Imported at first use: a program that only publishes need not wait for them, nor a blocking one for asyncio.
_LATER = {
    "connect": ("aio", "connect"),
    "Callback": ("aio.connection", "Callback"),
    "Client": ("aio.connection", "Client"),
    "Message": ("aio.messages", "Message"),
    "StatusEvents": ("aio.status", "StatusEvents"),
    "Subscription": ("aio.subscription", "Subscription"),
    "AtomicBatch": ("aio.batches", "AtomicBatch"),
    "FastBatch": ("aio.batches", "FastBatch"),
    "Counter": ("aio.counters", "Counter"),
    "CounterEntry": ("jetstream.counters", "CounterEntry"),
    "Schedule": ("jetstream.schedules", "Schedule"),
    "Consumer": ("aio.consuming", "Consumer"),
    "ConsumerMessages": ("aio.consuming", "ConsumerMessages"),
    "OrderedConsumer": ("aio.consuming", "OrderedConsumer"),
    "PushConsumer": ("aio.consuming", "PushConsumer"),
    "PushMessages": ("aio.consuming", "PushMessages"),
    "JetStream": ("aio.jetstream", "JetStream"),
    "PushSubscription": ("aio.jetstream", "PushSubscription"),
    "ObjectInfo": ("objects.models", "ObjectInfo"),
    "ObjectLink": ("objects.models", "ObjectLink"),
    "ObjectStore": ("aio.objects", "ObjectStore"),
    "ObjectStoreConfig": ("objects.models", "ObjectStoreConfig"),
    "ObjectStoreStatus": ("objects.models", "ObjectStoreStatus"),
    "ObjectWatcher": ("aio.objects", "ObjectWatcher"),
    "Publisher": ("aio.publishing", "Publisher"),
    "PullConsumer": ("aio.pulling", "PullConsumer"),
    "BlockingAtomicBatch": ("sync.batches", "AtomicBatch"),
    "BlockingFastBatch": ("sync.batches", "FastBatch"),
    "BlockingCounter": ("sync.counters", "Counter"),
    "BlockingConsumer": ("sync.consuming", "Consumer"),
    "BlockingConsumerMessages": ("sync.consuming", "ConsumerMessages"),
    "BlockingOrderedConsumer": ("sync.consuming", "OrderedConsumer"),
    "BlockingPushConsumer": ("sync.consuming", "PushConsumer"),
    "BlockingPushMessages": ("sync.consuming", "PushMessages"),
    "BlockingJetStream": ("sync.jetstream", "JetStream"),
    "BlockingPushSubscription": ("sync.jetstream", "PushSubscription"),
    "BlockingObjectStore": ("sync.objects", "ObjectStore"),
    "BlockingObjectWatcher": ("sync.objects", "ObjectWatcher"),
    "BlockingPublisher": ("sync.publishing", "Publisher"),
    "BlockingPullConsumer": ("sync.pulling", "PullConsumer"),
    "Request": ("aio.services", "Request"),
    "Service": ("aio.services", "Service"),
    "ServiceClient": ("aio.services", "ServiceClient"),
    "ServiceGroup": ("aio.services", "ServiceGroup"),
    "EndpointInfo": ("services.models", "EndpointInfo"),
    "EndpointStats": ("services.models", "EndpointStats"),
    "ServiceConfig": ("services.models", "ServiceConfig"),
    "ServiceInfo": ("services.models", "ServiceInfo"),
    "ServicePing": ("services.models", "ServicePing"),
    "ServiceStats": ("services.models", "ServiceStats"),
    "BlockingRequest": ("sync.services", "Request"),
    "BlockingService": ("sync.services", "Service"),
    "BlockingServiceClient": ("sync.services", "ServiceClient"),
    "BlockingServiceGroup": ("sync.services", "ServiceGroup"),
    "ColumnReader": ("sync.bulk.columns", "ColumnReader"),
    "KeyValue": ("aio.keyvalue", "KeyValue"),
    "KeyWatch": ("aio.keyvalue", "KeyWatch"),
    "KeyTransaction": ("aio.keyvalue", "KeyTransaction"),
    "BlockingKeyValue": ("sync.keyvalue", "KeyValue"),
    "BlockingKeyWatch": ("sync.keyvalue", "KeyWatch"),
    "BlockingKeyTransaction": ("sync.keyvalue", "KeyTransaction"),
    "KeyValueConfig": ("keyvalue.config", "KeyValueConfig"),
    "KeyValueStatus": ("keyvalue.config", "KeyValueStatus"),
    "KvEntry": ("keyvalue.entries", "KvEntry"),
    "KvSnapshot": ("keyvalue.many", "KvSnapshot"),
    "Base64Keys": ("keyvalue.codecs", "Base64Keys"),
    "Base64Values": ("keyvalue.codecs", "Base64Values"),
    "FilterableKeyCodec": ("keyvalue.codecs", "FilterableKeyCodec"),
    "KeyCodec": ("keyvalue.codecs", "KeyCodec"),
    "PathKeys": ("keyvalue.codecs", "PathKeys"),
    "TypedValues": ("keyvalue.codecs", "TypedValues"),
    "ValueCodec": ("keyvalue.codecs", "ValueCodec"),
    "ConsumerEvent": ("consume.events", "ConsumerEvent"),
    "ElasticGroup": ("aio.groups", "ElasticGroup"),
    "GroupMessages": ("aio.groups", "GroupMessages"),
    "StaticGroup": ("aio.groups", "StaticGroup"),
    "BlockingElasticGroup": ("sync.groups", "ElasticGroup"),
    "BlockingGroupMessages": ("sync.groups", "GroupMessages"),
    "BlockingStaticGroup": ("sync.groups", "StaticGroup"),
    "ElasticGroupConfig": ("groups.config", "ElasticGroupConfig"),
    "MemberMapping": ("groups.config", "MemberMapping"),
    "PartitioningFilter": ("groups.config", "PartitioningFilter"),
    "StaticGroupConfig": ("groups.config", "StaticGroupConfig"),
}

__all__ = [
    "AccountInfo",
    "ApiError",
    "AtomicBatch",
    "AuthenticationError",
    "BadBucketError",
    "Base64Keys",
    "Base64Values",
    "BatchEndedError",
    "BlockingAtomicBatch",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingConsumerMessages",
    "BlockingCounter",
    "BlockingElasticGroup",
    "BlockingFastBatch",
    "BlockingGroupMessages",
    "BlockingJetStream",
    "BlockingKeyTransaction",
    "BlockingKeyValue",
    "BlockingKeyWatch",
    "BlockingMessage",
    "BlockingObjectStore",
    "BlockingObjectWatcher",
    "BlockingOrderedConsumer",
    "BlockingPublisher",
    "BlockingPullConsumer",
    "BlockingPushConsumer",
    "BlockingPushMessages",
    "BlockingPushSubscription",
    "BlockingRequest",
    "BlockingService",
    "BlockingServiceClient",
    "BlockingServiceGroup",
    "BlockingStaticGroup",
    "BlockingStatusEvents",
    "BlockingSubscription",
    "BucketExistsError",
    "BucketNotFoundError",
    "BucketReplacedError",
    "Callback",
    "CallbackFailedError",
    "Client",
    "ClientInUseError",
    "ColumnReader",
    "ConnectError",
    "ConnectOptions",
    "ConnectionClosedError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerBusyError",
    "ConsumerConfig",
    "ConsumerDeletedError",
    "ConsumerEvent",
    "ConsumerExistsError",
    "ConsumerInfo",
    "ConsumerMessages",
    "ConsumerNotFoundError",
    "ConsumerPause",
    "ContextError",
    "Counter",
    "CounterEntry",
    "DirectGetError",
    "Duration",
    "ElasticGroup",
    "ElasticGroupConfig",
    "EndpointInfo",
    "EndpointStats",
    "ExternalStream",
    "FastBatch",
    "FilterableKeyCodec",
    "GroupChangedError",
    "GroupError",
    "GroupExistsError",
    "GroupMessages",
    "GroupNotFoundError",
    "Headers",
    "InvalidBucketNameError",
    "InvalidKeyError",
    "InvalidStreamConfigError",
    "InvalidSubjectError",
    "InvalidValueError",
    "JetStream",
    "JetStreamDisabledError",
    "JetStreamUnavailableError",
    "KeyCodec",
    "KeyExistsError",
    "KeyTransaction",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueStatus",
    "KeyWatch",
    "KvEntry",
    "KvSnapshot",
    "LinkNotFollowedError",
    "Listing",
    "MaximumConsumersError",
    "MaximumStreamsError",
    "MemberMapping",
    "Message",
    "MessageNotFoundError",
    "MessageTooLargeError",
    "Metadata",
    "Moment",
    "Nanoseconds",
    "NoRespondersError",
    "NoValueError",
    "NotClusteredError",
    "NotEnabledError",
    "NotJetStreamMessageError",
    "ObjectDamagedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectLink",
    "ObjectNotFoundError",
    "ObjectReplacedError",
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectWatcher",
    "Options",
    "OrderedConsumer",
    "OutputFullError",
    "PartitioningFilter",
    "PathKeys",
    "PayloadTooLargeError",
    "PeltonError",
    "PeltonTimeoutError",
    "PermissionsViolationError",
    "Placement",
    "ProtocolError",
    "PubAck",
    "PublishFailedError",
    "Publisher",
    "PullConsumer",
    "PullError",
    "PushConsumer",
    "PushMessages",
    "PushSubscription",
    "Republish",
    "Request",
    "ResourcesExceededError",
    "RevisionConflictError",
    "Schedule",
    "Server",
    "ServerError",
    "ServerInfo",
    "Service",
    "ServiceClient",
    "ServiceConfig",
    "ServiceError",
    "ServiceGroup",
    "ServiceInfo",
    "ServicePing",
    "ServiceStats",
    "SlowConsumerError",
    "StaticGroup",
    "StaticGroupConfig",
    "Stats",
    "Status",
    "StatusEvents",
    "StoredMessage",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamExistsError",
    "StreamInfo",
    "StreamNotFoundError",
    "StreamSealedError",
    "StreamSource",
    "StreamSourceConsumer",
    "StreamState",
    "SubjectTransform",
    "SubjectsOverlapError",
    "Subscription",
    "TlsOptions",
    "TypedValues",
    "ValueCodec",
    "WrongLastMessageIdError",
    "WrongLastSequenceError",
    "WrongStreamError",
    "connect",
    "connect_blocking",
]


if not TYPE_CHECKING:  # or checkers would take any name for one of this package

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, attribute = _LATER[name]
        found = globals()[name] = getattr(import_module(f".{module}", __name__), attribute)
        return found


def __dir__() -> list[str]:
    """All names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
