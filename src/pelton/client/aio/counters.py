"""Counters of a stream, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.counters import Counting
from .messages import Message
from .running import Awaited

if TYPE_CHECKING:
    from .connection import Client


class Counter(Awaited, Counting[Message]):
    """The counters of one stream; made by ``js.counter(stream)``::

    counter = js.counter("HITS")
    await counter.increment("hits.home", 2)
    await counter.get("hits.home")
    """

    client: Client
