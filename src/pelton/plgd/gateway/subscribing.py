"""One call of SubscribeToEvents: its subscriptions, each with a filter, and the answers in their order.

The answer to a request comes before its events: a subscription gets the events that arrive after it
was created, and none after it was canceled.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ..reasons import UndecodableEventError
from ..subjects import parse_subject
from ..wire import gateway_pb2 as pb
from .answers import BadRequest
from .filters import EventFilter, as_answer, canceled, processed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .feeds import Feeds, Heard, Reader

SUBSCRIPTIONS_MAX = 1000
"""Subscriptions that one call may have at once."""

SUBSCRIPTION_BYTES_MAX = 1 << 20
"""Bytes of the subscriptions of one call, as they were sent."""

CORRELATION_BYTES_MAX = 1024
"""Bytes of a correlation id: it comes back with each event."""

REQUESTS_MAX = 64
"""Answers to requests that may wait until the client reads them."""

AT_ONCE = 256
"""Messages that a reader looks at before others have their turn."""

Status = pb.Event.OperationProcessed.ErrorStatus
log = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A subscription: its filter, the ids in its answers, and the number of messages before it."""

    filter: EventFilter
    correlation_id: str
    since: int
    bytes: int


class Subscriber:
    """A call and its subscriptions; `answers` are what its client gets."""

    def __init__(self, feeds: Feeds, owner: str) -> None:
        """``owner`` is the owner claim."""
        self.feeds = feeds
        self.owner = owner
        self.asked: dict[str, Asked] = {}
        self._asked_bytes = 0
        self._told: deque[Any] = deque()
        self._room = asyncio.Event()
        self._reader: Reader | None = None
        self._asking: asyncio.Future[None] | None = None
        self._ended = self._closed = False
        self._failure: BaseException | None = None

    async def answers(self, requests: Any) -> AsyncGenerator[Any]:
        """The answers to the client; raises errors of the bus, and TooSlowError."""
        reader = self._reader = await self.feeds.join(self.owner)
        if self._closed:
            self.feeds.leave(reader)
            return
        self._asking = asyncio.ensure_future(self._requested(requests, reader))
        looked = 0
        try:
            while True:
                while self._told:
                    yield self._told.popleft()
                    self._room.set()
                if self._failure is not None:
                    raise self._failure
                if self._ended:
                    return
                reader.woken.clear()
                heard = reader.take()
                if heard is None:
                    looked = 0
                    await reader.woken.wait()
                    continue
                for answer in self.wanted(heard, reader):
                    yield answer
                looked += 1
                if looked % AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            self.close()

    def fail(self, failure: Exception) -> None:
        """End `answers` with an error."""
        self._failure = failure
        if self._reader is not None:
            self._reader.woken.set()

    def close(self) -> None:
        """Clean up when the call ends, also in the middle of `answers`."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
        if self._reader is not None:
            self.feeds.leave(self._reader)

    async def _requested(self, requests: Any, reader: Reader) -> None:
        """Carry out the client's requests, until it sends no more."""
        try:
            async for request in requests:
                while len(self._told) >= REQUESTS_MAX:
                    self._room.clear()
                    await self._room.wait()
                self._told += self.carry_out(request, reader.log.count)
                reader.woken.set()
        except Exception as error:
            self._failure = error
        self._ended = True
        reader.woken.set()

    def carry_out(self, request: Any, count: int) -> list[Any]:
        """Create or cancel a subscription, after a count of messages; the answers."""
        correlation = request.correlation_id
        if len(correlation.encode()) > CORRELATION_BYTES_MAX:
            text = f"the correlation id has more than {CORRELATION_BYTES_MAX} bytes"
            return [processed("", correlation[:64], Status.ERROR, text)]
        action = request.WhichOneof("action")
        if action == "create_subscription":
            name = str(uuid.uuid4())
            try:
                if len(self.asked) >= SUBSCRIPTIONS_MAX:
                    raise BadRequest(f"a call has {SUBSCRIPTIONS_MAX} subscriptions at most")
                size = request.ByteSize()
                if self._asked_bytes + size > SUBSCRIPTION_BYTES_MAX:
                    raise BadRequest(
                        f"the subscriptions of a call have {SUBSCRIPTION_BYTES_MAX} bytes at most"
                    )
                wanted = EventFilter(request.create_subscription)
            except BadRequest as error:
                return [processed(name, correlation, Status.ERROR, str(error))]
            self.asked[name] = Asked(wanted, correlation, count, size)
            self._asked_bytes += size
            return [processed(name, correlation, Status.OK)]
        if action == "cancel_subscription":
            name = request.cancel_subscription.subscription_id
            gone = self.asked.pop(name, None)
            if gone is None:
                text = f"no subscription {name[:64]!r}"
                return [processed(name[:64], correlation, Status.NOT_FOUND, text)]
            self._asked_bytes -= gone.bytes
            return [canceled(name, correlation), processed(name, correlation, Status.OK)]
        return [processed("", correlation, Status.ERROR, "neither create nor cancel")]

    def wanted(self, heard: Heard, reader: Reader) -> list[Any]:
        """The answers to a message that a reader took. A message that is no event is logged."""
        try:
            subject = parse_subject(heard.subject)
            asking = [
                (name, one)
                for name, one in self.asked.items()
                if one.since < reader.number and one.filter.may_want(subject)
            ]
            if not asking:
                return []
            event = reader.log.event(heard, subject)
        except UndecodableEventError as bad:
            log.warning("subscribers get no event of a message on %s: %s", heard.subject, bad)
            return []
        return [
            as_answer(event, name, one.correlation_id)
            for name, one in asking
            if one.filter.wants(event)
        ]
