"""Pulling messages of one consumer, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pulling import Pulling
from .messages import BlockingMessage
from .running import Entered, exclusive

if TYPE_CHECKING:
    from .connection import BlockingClient


class PullConsumer(Entered, Pulling[BlockingMessage]):
    """Pulls messages of one consumer; made by ``JetStream.pull``. One call at a time.

    Use it in ``with``, or ``close`` it: until then the server keeps a subscription for it. The
    subscription of a handle that is garbage collected is ended, too, some time later.
    """

    client: BlockingClient

    close = exclusive(Pulling.close)
