"""Pull requests as values and state: the requests to a consumer, and the replies.

A request is published to ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`` with its own reply subject
below the inbox of the handle. Messages arrive with their stream subject, so only statuses tell to
which request they belong::

    request 1 (batch 3)  ──►  message, message, message              complete: no status follows
    request 2 (batch 3)  ──►  message, 408 Request Timeout                     expired
    request 3 (no_wait)  ──►  404 No Messages

Messages of a request that was given up still belong to the consumer's user: they count for the next
request. Does not depend on time or transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.api import encode
from pelton.api.calls import PullRequest
from pelton.errors import ConsumerDeletedError, NoRespondersError, PeltonError, PullError

if TYPE_CHECKING:
    from ..base.message import BaseMessage

HEARTBEAT = 100
NOT_FOUND = 404
TIMEOUT = 408
CONFLICT = 409
NO_RESPONDERS = 503

PENDING_MESSAGES = "Nats-Pending-Messages"
STALLED = "Nats-Consumer-Stalled"
REFUSALS_MAX = 120
"""The number of unanswered requests in a row, one each RETRY_S, to a consumer in a cluster."""
MOVING = ("leadership change", "server shutdown")
"""How a server describes that another one will lead the consumer."""
TRANSIENT = (*MOVING, "exceeded maxwaiting")


def check_most(batch: int, max_bytes: int) -> None:
    """Raise ValueError unless a pull may ask for so many messages, with so many bytes at most."""
    if batch < 1:
        raise ValueError(f"a pull asks for at least one message, got {batch}")
    if max_bytes < 0:
        raise ValueError(f"max_bytes is at least 1, or 0 for any size, got {max_bytes}")


def pull_body(
    batch: int,
    *,
    expires_ns: int = 0,
    no_wait: bool = False,
    max_bytes: int = 0,
    idle_heartbeat_ns: int = 0,
) -> bytes:
    """The body of a pull request.

    The deadline counts from the server's receipt, 0 for none; a heartbeat is at most half of it.
    ``max_bytes`` includes subjects and headers, 0 for no limit.
    """
    check_most(batch, max_bytes)
    request = PullRequest(
        batch=batch,
        expires=expires_ns,
        no_wait=no_wait,
        max_bytes=max_bytes,
        idle_heartbeat=idle_heartbeat_ns,
    )
    return encode(request)


def status_error(status: int, description: str, subject: str) -> PeltonError | None:
    """The error for a status; None when it only says that a request is over."""
    low = description.lower()
    if status in (NOT_FOUND, TIMEOUT) or (status == CONFLICT and low.startswith("batch completed")):
        return None
    if status == NO_RESPONDERS:
        return NoRespondersError(subject)
    if status == CONFLICT and low.startswith("consumer deleted"):
        return ConsumerDeletedError(status, description)
    return PullError(status, description)


class Fetch:
    """One pull request with a waiting caller.

    ``subject`` is the subject of the request, ``reply`` its own inbox.
    """

    def __init__(self, subject: str, reply: str, batch: int) -> None:
        """``reply`` may be set later, once it is known."""
        self.subject = subject
        self.reply = reply
        self.batch = batch
        self.messages: list[BaseMessage] = []
        self.done = False
        self.error: PeltonError | None = None
        self._moved = False

    def take(self, message: BaseMessage) -> None:
        """Take a message for the handle; sets ``done`` when the request is over.

        Sets ``error`` as well if it failed.
        """
        status = message.status if message.raw_headers else 0
        if status == 0:
            self.messages.append(message)
            self.done = len(self.messages) >= self.batch
        elif status != HEARTBEAT and message.subject == self.reply:
            self.done = True
            self.error = status_error(status, message.description, self.subject)

    def may_begin_again(self, *, clustered: bool) -> bool:
        """Whether the same request may be answered soon: the consumer gets another leader."""
        error = self.error
        if isinstance(error, PullError) and error.description.lower().startswith(MOVING):
            self._moved = True
            return True
        return clustered and isinstance(error, NoRespondersError)

    def again(self, reply: str) -> None:
        """The request was not answered with messages, and was sent again with the inbox ``reply``."""
        self.reply, self.done, self.error = reply, False, None

    def result(self) -> list[BaseMessage]:
        """The messages; raises the error only if there are none, so that no message is lost.

        A consumer that was moving to another leader when the time was over had no messages: that is no
        error.
        """
        if self.error is not None and not self.messages and not self._moving():
            raise self.error
        return self.messages

    def _moving(self) -> bool:
        """Whether the consumer exists and had no leader at the end."""
        if isinstance(self.error, PullError):
            return self.error.description.lower().startswith(MOVING)
        return self._moved and isinstance(self.error, NoRespondersError)


class Flow:
    """Pull requests that overlap, so that a consumer can always deliver.

    A new request is due when at most half a batch is still outstanding.
    """

    def __init__(
        self, subject: str, batch: int, max_bytes: int, expires_ns: int, heartbeat_ns: int
    ) -> None:
        """No request is outstanding; ValueError for an empty batch."""
        if batch < 1:
            raise ValueError(f"a batch has at least one message, got {batch}")
        self.subject = subject
        self.outstanding = 0
        self.refusals = 0
        """The number of unanswered requests in a row."""
        self._batch = batch
        self._max_bytes = max_bytes
        self._expires_ns = expires_ns
        self._heartbeat_ns = heartbeat_ns

    def due(self) -> bytes | None:
        """The body of the request to send now, or None."""
        if self.outstanding > self._batch // 2:
            return None
        count = self._batch - self.outstanding
        self.outstanding += count
        return pull_body(
            count,
            expires_ns=self._expires_ns,
            max_bytes=self._max_bytes,
            idle_heartbeat_ns=self._heartbeat_ns,
        )

    def restart(self) -> None:
        """Forget outstanding requests: the connection or the server's state of them is gone."""
        self.outstanding = 0

    def take(self, message: BaseMessage, *, clustered: bool = False) -> bool:
        """Whether the message is for the user. Raises when the consumer cannot be pulled from any more.

        When the server is ``clustered``, a request without an answer may mean that the consumer elects a
        leader: it is repeated after RETRY_S, up to REFUSALS_MAX times in a row.
        """
        status = message.status if message.raw_headers else 0
        if status == 0:
            self.outstanding = max(0, self.outstanding - 1)
            self.refusals = 0
            return True
        if status == HEARTBEAT:
            self.refusals = 0
            return False
        if status == NO_RESPONDERS and clustered and self.refusals < REFUSALS_MAX:
            self.refusals += 1
            self.outstanding = 0
            return False
        error = status_error(status, message.description, self.subject)
        if error is not None and not message.description.lower().startswith(TRANSIENT):
            raise error
        left = message.header(PENDING_MESSAGES)
        self.outstanding = max(0, self.outstanding - int(left)) if left and left.isdigit() else 0
        return False


def control_reply(message: BaseMessage) -> str | None:
    """The reply subject for a control message of a push consumer; None for a real message.

    It is "" when no answer is needed. Heartbeats and flow-control requests (status 100) that ask for an
    answer get an empty message.
    """
    if message.status != HEARTBEAT:
        return None
    return message.reply or message.header(STALLED) or ""
