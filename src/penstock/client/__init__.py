"""The client: NATS and JetStream, for asyncio (``connect``) and for code that waits
(``connect_blocking``).

::

    aio.py  aio_jetstream.py          blocking.py  blocking_jetstream.py  columns.py        shells:
    sockets, time
        └───────────────┬─────────────────────┘
    connection.py  pool.py  jetstream.py  pull.py  publishing.py  ordered.py                no I/O,
    no clock

Everything a user needs can be imported from here. What asyncio code uses has the plain name, what
blocking code uses the same one with ``Blocking`` in front: ``Client`` and ``BlockingClient``,
``Message`` and ``BlockingMessage``.
"""

from typing import TYPE_CHECKING

from penstock.errors import (
    ApiError,
    AuthenticationError,
    BatchEnded,
    CallbackFailed,
    ClientInUse,
    ConnectError,
    ConnectionClosed,
    ConnectionLost,
    ConsumerDeleted,
    ConsumerNotFound,
    InvalidSubject,
    MessageNotFound,
    NoResponders,
    NotJetStreamMessage,
    OutputFull,
    PayloadTooLarge,
    PenstockError,
    PermissionsViolation,
    ProtocolError,
    PublishFailed,
    PullError,
    ServerError,
    SlowConsumer,
    StreamExists,
    StreamNotFound,
    Timeout,
    WrongLastSequence,
)

from .aio import connect
from .aio_client import Callback, Client
from .aio_handlers import Stats
from .aio_message import Message
from .aio_subscription import Subscription
from .blocking import BlockingClient, connect_blocking
from .blocking_subscription import BlockingMessage
from .blocking_subscription import Subscription as BlockingSubscription
from .durations import Duration, Moment, Nanoseconds
from .info import ServerInfo
from .jetstream import Headers, Listing, StoredMessage
from .models import (
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
from .options import ConnectOptions, Options, Server, TlsOptions

if TYPE_CHECKING:
    from .aio_batches import AtomicBatch, FastBatch
    from .aio_jetstream import JetStream, PushSubscription
    from .aio_publisher import Publisher
    from .aio_pull import PullConsumer
    from .blocking_batches import AtomicBatch as BlockingAtomicBatch
    from .blocking_batches import FastBatch as BlockingFastBatch
    from .blocking_jetstream import (
        JetStream as BlockingJetStream,
    )
    from .blocking_jetstream import (
        PushSubscription as BlockingPushSubscription,
    )
    from .blocking_publisher import Publisher as BlockingPublisher
    from .blocking_pull import PullConsumer as BlockingPullConsumer
    from .columns import ColumnReader

# Loaded when they are first asked for: a program that only publishes need not wait for them.
_LATER = {
    "AtomicBatch": ("aio_batches", "AtomicBatch"),
    "FastBatch": ("aio_batches", "FastBatch"),
    "JetStream": ("aio_jetstream", "JetStream"),
    "PushSubscription": ("aio_jetstream", "PushSubscription"),
    "Publisher": ("aio_publisher", "Publisher"),
    "PullConsumer": ("aio_pull", "PullConsumer"),
    "BlockingAtomicBatch": ("blocking_batches", "AtomicBatch"),
    "BlockingFastBatch": ("blocking_batches", "FastBatch"),
    "BlockingJetStream": ("blocking_jetstream", "JetStream"),
    "BlockingPushSubscription": ("blocking_jetstream", "PushSubscription"),
    "BlockingPublisher": ("blocking_publisher", "Publisher"),
    "BlockingPullConsumer": ("blocking_pull", "PullConsumer"),
    "ColumnReader": ("columns", "ColumnReader"),
}

__all__ = [
    "AccountInfo",
    "ApiError",
    "AtomicBatch",
    "AuthenticationError",
    "BatchEnded",
    "BlockingAtomicBatch",
    "BlockingClient",
    "BlockingFastBatch",
    "BlockingJetStream",
    "BlockingMessage",
    "BlockingPublisher",
    "BlockingPullConsumer",
    "BlockingPushSubscription",
    "BlockingSubscription",
    "Callback",
    "CallbackFailed",
    "Client",
    "ClientInUse",
    "ColumnReader",
    "ConnectError",
    "ConnectOptions",
    "ConnectionClosed",
    "ConnectionLost",
    "ConsumerConfig",
    "ConsumerDeleted",
    "ConsumerInfo",
    "ConsumerNotFound",
    "Duration",
    "ExternalStream",
    "FastBatch",
    "Headers",
    "InvalidSubject",
    "JetStream",
    "Listing",
    "Message",
    "MessageNotFound",
    "Metadata",
    "Moment",
    "Nanoseconds",
    "NoResponders",
    "NotJetStreamMessage",
    "Options",
    "OutputFull",
    "PayloadTooLarge",
    "PenstockError",
    "PermissionsViolation",
    "Placement",
    "ProtocolError",
    "PubAck",
    "PublishFailed",
    "Publisher",
    "PullConsumer",
    "PullError",
    "PushSubscription",
    "Republish",
    "Server",
    "ServerError",
    "ServerInfo",
    "SlowConsumer",
    "Stats",
    "StoredMessage",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamExists",
    "StreamInfo",
    "StreamNotFound",
    "StreamSource",
    "StreamSourceConsumer",
    "StreamState",
    "SubjectTransform",
    "Subscription",
    "Timeout",
    "TlsOptions",
    "WrongLastSequence",
    "connect",
    "connect_blocking",
]


def __getattr__(name: str) -> object:
    """What is loaded late."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LATER[name]
    found = globals()[name] = getattr(import_module(f".{module}", __name__), attribute)
    return found


def __dir__() -> list[str]:
    """Everything, also what is not loaded yet."""
    return sorted({*globals(), *__all__})
