"""Counters of a stream, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.counters import Counting
from .messages import Message
from .running import Blocking

if TYPE_CHECKING:
    from .connection import Client


class Counter(Blocking, Counting[Message]):
    """The counters of one stream; made by ``js.counter(stream)``::

    counter = js.counter("HITS")
    counter.increment("hits.home", 2)
    counter.get("hits.home")
    """

    client: Client
