"""Pulling messages of one consumer, for blocking code."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pelton.errors import ClientInUseError

from ..jetstream.pulling import Pulling
from .messages import Message
from .running import Entered, exclusive

if TYPE_CHECKING:
    from .connection import Client


class PullConsumer(Entered, Pulling[Message]):
    """Pulls messages of one consumer; made by ``JetStream.pull``.

    One call at a time: a call during that of another thread raises ClientInUseError.

    Use it in ``with``, or ``close`` it: until then the server keeps a subscription for it. The
    subscription of a handle that is garbage collected is ended, too, some time later.

    ::

        with js.pull("ORDERS", "billing") as billing:
            for message in billing.fetch(100, timeout="2s"):
                message.ack()
    """

    client: Client
    _user = 0  # the thread of the running call

    close = exclusive(Pulling.close)

    def _occupy(self) -> None:
        me = threading.get_ident()
        if self._busy and self._user != me:
            raise ClientInUseError
        self._user = me
        super()._occupy()
