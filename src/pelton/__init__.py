"""Pelton: JetStream, the NATS persistence engine, in Python.

The client for asyncio, with its models, configurations and errors::

    from pelton import connect

    async with connect("nats://127.0.0.1:4222") as nc:
        await nc.publish("greetings.anna", b"hello")

``pelton.sync`` is the client for blocking code. ``pelton.embedded`` is a server in this process, and
``pelton.testing`` has servers for tests.

Packages, from the bottom up (imports go strictly downward, held by ``tests/test_layers.py``)::

    level 5   cli                        testing
    level 4   embedded                   pipeline  sql
    level 3   server   store             spark  kombu  apply  plgd  sync  opentelemetry
    level 2   engine                     client
    level 1   api
    level 0   core     errors  nuid  nkeys  vault  arrow  exports

This module and ``sync`` name the client's classes for programs. The packages themselves import them from the
modules that define them.
"""

from pelton.exports import at_first_use

__version__ = "0.1.0"

with at_first_use(globals()):
    from pelton import sync as sync
    from pelton.api.calls import AccountInfo as AccountInfo, PubAck as PubAck
    from pelton.api.streams import (
        ExternalStream as ExternalStream,
        Placement as Placement,
        Republish as Republish,
        StreamSourceConsumer as StreamSourceConsumer,
        StreamState as StreamState,
        SubjectTransform as SubjectTransform,
    )
    from pelton.client.aio import connect as connect
    from pelton.client.aio.backend import Callback as Callback
    from pelton.client.aio.connection import Client as Client, StatusEvents as StatusEvents
    from pelton.client.aio.consumers import (
        Consumer as Consumer,
        OrderedConsumer as OrderedConsumer,
        PushConsumer as PushConsumer,
    )
    from pelton.client.aio.groups import (
        ElasticGroup as ElasticGroup,
        GroupMessages as GroupMessages,
        StaticGroup as StaticGroup,
    )
    from pelton.client.aio.jetstream import JetStream as JetStream
    from pelton.client.aio.keyvalue import KeyValue as KeyValue
    from pelton.client.aio.messages import Message as Message
    from pelton.client.aio.objectstore import ObjectStore as ObjectStore
    from pelton.client.aio.operations import (
        ConsumerMessages as ConsumerMessages,
        PushMessages as PushMessages,
    )
    from pelton.client.aio.publishing import (
        AtomicBatch as AtomicBatch,
        FastBatch as FastBatch,
        Publisher as Publisher,
    )
    from pelton.client.aio.services import (
        Request as Request,
        Service as Service,
        ServiceClient as ServiceClient,
        ServiceGroup as ServiceGroup,
    )
    from pelton.client.aio.stored import Counter as Counter
    from pelton.client.aio.subscription import Subscription as Subscription
    from pelton.client.aio.transactions import KeyTransaction as KeyTransaction
    from pelton.client.aio.watches import KeyWatch as KeyWatch, ObjectWatch as ObjectWatch
    from pelton.client.base.addresses import Server as Server, TlsOptions as TlsOptions
    from pelton.client.base.durations import (
        Duration as Duration,
        Moment as Moment,
        Nanoseconds as Nanoseconds,
    )
    from pelton.client.base.message import Headers as Headers, HeadersLike as HeadersLike
    from pelton.client.base.models import (
        ConsumerConfig as ConsumerConfig,
        ConsumerInfo as ConsumerInfo,
        ConsumerPause as ConsumerPause,
        Listing as Listing,
        Metadata as Metadata,
        StoredMessage as StoredMessage,
        StreamConfig as StreamConfig,
        StreamConsumerLimits as StreamConsumerLimits,
        StreamInfo as StreamInfo,
        StreamSource as StreamSource,
    )
    from pelton.client.consume.events import ConsumerEvent as ConsumerEvent
    from pelton.client.groups import (
        ElasticGroupConfig as ElasticGroupConfig,
        MemberMapping as MemberMapping,
        PartitioningFilter as PartitioningFilter,
        StaticGroupConfig as StaticGroupConfig,
    )
    from pelton.client.keyvalue.codecs import (
        Base64Keys as Base64Keys,
        Base64Values as Base64Values,
        FilterableKeyCodec as FilterableKeyCodec,
        KeyCodec as KeyCodec,
        PathKeys as PathKeys,
        TypedValues as TypedValues,
        ValueCodec as ValueCodec,
    )
    from pelton.client.keyvalue.config import (
        KeyValueConfig as KeyValueConfig,
        KeyValueStatus as KeyValueStatus,
    )
    from pelton.client.keyvalue.entries import KvEntry as KvEntry, KvSnapshot as KvSnapshot
    from pelton.client.objects.models import (
        ObjectInfo as ObjectInfo,
        ObjectLink as ObjectLink,
        ObjectStoreConfig as ObjectStoreConfig,
        ObjectStoreStatus as ObjectStoreStatus,
    )
    from pelton.client.protocol.info import ServerInfo as ServerInfo
    from pelton.client.protocol.options import ConnectOptions as ConnectOptions, Options as Options
    from pelton.client.services import (
        EndpointInfo as EndpointInfo,
        EndpointStats as EndpointStats,
        ServiceConfig as ServiceConfig,
        ServiceInfo as ServiceInfo,
        ServicePing as ServicePing,
        ServiceStats as ServiceStats,
    )
    from pelton.client.session.session import Stats as Stats
    from pelton.client.session.status import Status as Status
    from pelton.client.stored import CounterEntry as CounterEntry, Schedule as Schedule
    from pelton.errors import (
        ApiError as ApiError,
        AuthenticationError as AuthenticationError,
        BadBucketError as BadBucketError,
        BatchEndedError as BatchEndedError,
        BucketExistsError as BucketExistsError,
        BucketNotFoundError as BucketNotFoundError,
        BucketReplacedError as BucketReplacedError,
        CallbackFailedError as CallbackFailedError,
        ConnectError as ConnectError,
        ConnectionClosedError as ConnectionClosedError,
        ConnectionLostError as ConnectionLostError,
        ConsumerBusyError as ConsumerBusyError,
        ConsumerDeletedError as ConsumerDeletedError,
        ConsumerExistsError as ConsumerExistsError,
        ConsumerNotFoundError as ConsumerNotFoundError,
        ContextError as ContextError,
        DirectGetError as DirectGetError,
        GroupChangedError as GroupChangedError,
        GroupError as GroupError,
        GroupExistsError as GroupExistsError,
        GroupNotFoundError as GroupNotFoundError,
        InvalidBucketNameError as InvalidBucketNameError,
        InvalidKeyError as InvalidKeyError,
        InvalidStreamConfigError as InvalidStreamConfigError,
        InvalidSubjectError as InvalidSubjectError,
        InvalidValueError as InvalidValueError,
        JetStreamDisabledError as JetStreamDisabledError,
        JetStreamUnavailableError as JetStreamUnavailableError,
        KeyExistsError as KeyExistsError,
        LinkNotFollowedError as LinkNotFollowedError,
        MaximumConsumersError as MaximumConsumersError,
        MaximumStreamsError as MaximumStreamsError,
        MessageNotFoundError as MessageNotFoundError,
        MessageTooLargeError as MessageTooLargeError,
        NoRespondersError as NoRespondersError,
        NoValueError as NoValueError,
        NotClusteredError as NotClusteredError,
        NotEnabledError as NotEnabledError,
        NotJetStreamMessageError as NotJetStreamMessageError,
        ObjectDamagedError as ObjectDamagedError,
        ObjectExistsError as ObjectExistsError,
        ObjectNotFoundError as ObjectNotFoundError,
        ObjectReplacedError as ObjectReplacedError,
        OutputFullError as OutputFullError,
        PayloadTooLargeError as PayloadTooLargeError,
        PeltonError as PeltonError,
        PeltonTimeoutError as PeltonTimeoutError,
        PermissionsViolationError as PermissionsViolationError,
        ProtocolError as ProtocolError,
        PublishFailedError as PublishFailedError,
        PullError as PullError,
        ResourcesExceededError as ResourcesExceededError,
        RevisionConflictError as RevisionConflictError,
        ServerError as ServerError,
        ServiceError as ServiceError,
        SlowConsumerError as SlowConsumerError,
        StreamExistsError as StreamExistsError,
        StreamNotFoundError as StreamNotFoundError,
        StreamSealedError as StreamSealedError,
        SubjectsOverlapError as SubjectsOverlapError,
        WrongLastMessageIdError as WrongLastMessageIdError,
        WrongLastSequenceError as WrongLastSequenceError,
        WrongStreamError as WrongStreamError,
    )
