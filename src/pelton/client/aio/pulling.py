"""Pulling messages of one consumer, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.pulling import Pulling
from .messages import Message
from .running import Entered

if TYPE_CHECKING:
    from .connection import Client


class PullConsumer(Entered, Pulling[Message]):
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time.

    Use it in ``async with``, or ``close`` it: until then the server keeps a subscription for it. The
    subscription of a handle that is garbage collected is ended, too, some time later.

    ::

        async with js.pull("ORDERS", "billing") as billing:
            for message in await billing.fetch(100, timeout="2s"):
                await message.ack()
    """

    client: Client

    _calls_overlap = False
