"""The event store: aggregates with versions, and an outbox of the events that the bus does not have yet.

::

    Aggregates.change ──► EventStore.append ──► Outbox.relay ──► stream
    load, decide, retry    one transaction:       after any kill, each event once
                           events, state, outbox

`SqliteStore` is the store in a file; `mongo.MongoStore` keeps the documents of a hub in MongoDB.
One step stores events and puts them into the outbox, so every stored event will be published.
"""

from .aggregates import Aggregates, Change
from .model import Aggregate, EventStore, Outgoing, StoreError, VersionConflictError
from .outbox import Outbox
from .sqlite import SqliteStore

__all__ = [
    "Aggregate",
    "Aggregates",
    "Change",
    "EventStore",
    "Outbox",
    "Outgoing",
    "SqliteStore",
    "StoreError",
    "VersionConflictError",
]
