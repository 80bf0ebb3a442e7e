"""A subscription that keeps its messages until they are taken: its limits, dropped messages, and its
end. Does not depend on transports.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pelton.errors import ConnectionClosedError, SlowConsumerError

from ..base.arguments import check_number
from ..base.mailbox import Interest, Mailbox

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from .session import Session


class Subscribed(Mailbox):
    """Messages of one subject."""

    def __init__(self, client: Session, messages_max: int, bytes_max: int) -> None:
        """``client.attach`` sets ``interest``."""
        check_number("pending_messages_max", messages_max)
        check_number("pending_bytes_max", bytes_max)
        self.client = client
        """The client that it belongs to."""
        self._interest: Interest
        """The subscription in the connection; set by the client."""
        self.dropped = 0
        """Messages that were dropped because the pending limits were reached."""
        self._reported = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: deque[Any] = deque()
        self._ended = False
        self._pool: Any = None  # the Pool of the handler that takes the messages

    @property
    def subject(self) -> str:
        """The subject of the subscription."""
        return self._interest.subject

    @property
    def pending(self) -> int:
        """The number of received messages that are not taken yet."""
        return len(self._queue)

    @property
    def delivered(self) -> int:
        """The number of all received messages."""
        return self._interest.delivered

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """A message for this subscription arrived."""
        pool = self._pool
        if pool is not None and pool.inline:
            pool.handle(message)
            return
        size = len(message.data) + len(message.raw_headers)
        if not self._queue:
            self._bytes = 0  # exact again, whatever threads have done to it
        if len(self._queue) >= self._messages_max or self._bytes + size > self._bytes_max:
            # To wait for the program would fill the socket, and the server would end the whole connection as
            # that of a slow consumer. So the newest message is dropped.
            self._drop()
            return
        self._bytes += size
        self._queue.append(message)
        if self._waiting:
            self._stir()
        if pool is not None:
            pool.notify()

    def _on_end(self) -> None:
        """No message follows."""
        self._ended = True
        self._stir()

    def _handed_over(self, message: Any) -> None:
        """A handler is about to get a message that was in the queue."""
        self._bytes -= len(message.data) + len(message.raw_headers)
        if not self._queue:
            # The handler has caught up: if messages are dropped again, that is reported again.
            self._reported = self.dropped

    def _drop(self) -> None:
        self.dropped += 1
        # Once for many messages: an event for each would make a slow program slower.
        if self.dropped == self._reported + 1:
            error = SlowConsumerError(self.subject, 1)
            self.client._note("slow_consumer", error)
            if self._pool is not None:  # no call can raise it
                self.client._report(error)
        self._stir()

    # -- taking ------------------------------------------------------------------------------------

    def _has_news(self) -> bool:
        """Whether there is a message to take or an error to raise."""
        return bool(self._queue) or self._ended or self.dropped > self._reported

    def _take(self, *, tell: bool = True) -> Any:
        """The next message, when there is news; with ``tell`` it first reports dropped messages."""
        if tell and self.dropped != self._reported:
            lost, self._reported = self.dropped - self._reported, self.dropped
            raise SlowConsumerError(self.subject, lost)
        if not self._queue:
            self._interest.check()
            raise ConnectionClosedError(
                f"the subscription to {self.subject!r} has ended", self.subject
            )
        message = self._queue.popleft()
        self._bytes -= len(message.data) + len(message.raw_headers)
        return message

    def _over(self) -> bool:
        """Whether an iteration is complete; ConnectionClosedError when the client was lost."""
        if self._queue or self.dropped > self._reported or not self._ended:
            return False
        self._interest.check()
        return True

    def _unsubscribe(self, max_msgs: int = 0) -> None:
        """Queue the end of the subscription."""
        check_number("max_msgs", max_msgs)
        connection = self.client._connection
        connection.unsubscribe(self._interest, max_msgs)
        # With ``max_msgs`` it stays until the last message has come, and ``Ended`` follows.
        if self._interest.sid not in connection.interests:
            self._on_end()
