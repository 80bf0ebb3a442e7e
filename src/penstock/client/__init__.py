"""The client: NATS and JetStream, for asyncio (``connect``) and for code that waits
(``connect_blocking``).

::

    aio.py  aio_jetstream.py          blocking.py  blocking_jetstream.py  columns.py        shells:
    sockets, time
        └───────────────┬─────────────────────┘
    connection.py  pool.py  jetstream.py  pull.py  publishing.py  ordered.py                no I/O,
    no clock

Everything a user needs can be imported from here.
"""

from .aio import connect
from .aio_client import Client
from .aio_message import AioMessage
from .blocking import BlockingClient, connect_blocking
from .blocking_subscription import BlockingMessage
from .jetstream import StoredMessage
from .message import Message
from .models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    Metadata,
    PubAck,
    StreamConfig,
    StreamInfo,
)
from .options import Options, TlsOptions

__all__ = [
    "AccountInfo",
    "AioMessage",
    "BlockingClient",
    "BlockingMessage",
    "Client",
    "ConsumerConfig",
    "ConsumerInfo",
    "Message",
    "Metadata",
    "Options",
    "PubAck",
    "StoredMessage",
    "StreamConfig",
    "StreamInfo",
    "TlsOptions",
    "connect",
    "connect_blocking",
]
