"""A subscription that keeps its messages until they are taken: its limits, dropped messages, and its
end. Does not depend on transports.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import ConnectionClosedError, PeltonTimeoutError, SlowConsumerError

from ..base.message import BaseMessage
from ..base.steps import SEND, Mailbox, Until, call

if TYPE_CHECKING:
    from ..base.durations import Duration
    from ..base.interest import Interest
    from ..base.steps import Steps
    from .session import Session

M = TypeVar("M", bound=BaseMessage)


class Subscribed(Mailbox, Generic[M]):
    """Messages of one subject."""

    def __init__(self, client: Session[M], messages_max: int, bytes_max: int) -> None:
        """``client.attach`` sets ``interest``."""
        self.client = client
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
        self._inline = False  # whether a callback takes each message as it arrives
        self._hires = False  # whether several callbacks may run at a time

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
        if self._inline:
            self._hand_over(message)
            return
        size = len(message.data) + len(message.raw_headers)
        if not self._queue:
            self._bytes = 0  # exact again, whatever threads have done to it
        if len(self._queue) >= self._messages_max or self._bytes + size > self._bytes_max:
            self._drop()
            return
        self._bytes += size
        self._queue.append(message)
        if self._waiting:
            self._stir()
        elif self._hires:
            self._hire()

    def _on_end(self) -> None:
        """No message follows."""
        self._ended = True
        self._stir()

    def _hand_over(self, message: Any) -> None:
        """Pass the message to the callback that is called as messages arrive."""

    def _hire(self) -> None:
        """Let one more callback run, because nobody waits for the message."""

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == self._reported + 1:
            self.client._note("slow_consumer", SlowConsumerError(self.subject, 1))
        self._stir()

    # -- taking ------------------------------------------------------------------------------------

    def _has_news(self) -> bool:
        """Whether there is a message to take or an error to raise."""
        return bool(self._queue) or self._ended or self.dropped > self._reported

    def _take(self, *, tell: bool = True) -> M:
        """The next message, when there is news; with ``tell`` it first reports dropped messages."""
        if tell and self.dropped != self._reported:
            lost, self._reported = self.dropped - self._reported, self.dropped
            raise SlowConsumerError(self.subject, lost)
        if not self._queue:
            self._interest.check()
            raise ConnectionClosedError(
                f"the subscription to {self.subject!r} has ended", self.subject
            )
        message: M = self._queue.popleft()
        self._bytes -= len(message.data) + len(message.raw_headers)
        return message

    def _taking(self, timeout: Duration | None = None) -> Steps[M]:
        """The next message.

        Raises PeltonTimeoutError, ConnectionClosedError when no message can come any more, and once SlowConsumerError
        when messages were dropped since the last call.
        """
        if not self._has_news():
            seconds = self.client._timeout_of(timeout)
            if not (yield Until(self, self._has_news, seconds)):
                raise PeltonTimeoutError(f"no message on {self.subject!r} in {seconds} s")
        return self._take()

    def _over(self) -> bool:
        """Whether an iteration is complete; ConnectionClosedError when the client was lost."""
        if self._queue or self.dropped > self._reported or not self._ended:
            return False
        self._interest.check()
        return True

    # -- ending ------------------------------------------------------------------------------------

    def _unsubscribing(self, max_msgs: int = 0) -> Steps[None]:
        """Unsubscribe at once, or with max_msgs after that many messages in all."""
        connection = self.client._connection
        connection.unsubscribe(self._interest, max_msgs)
        yield SEND
        if self._interest.sid not in connection.interests:
            self._on_end()

    unsubscribe = call(_unsubscribing)

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """Unsubscribe at the end of the block; the consumer of a push subscription stays."""
        if not self._ended and not self.client.closed:
            yield from self._unsubscribing()

    def _draining(self, timeout: Duration | None = None) -> Steps[None]:
        """Unsubscribe, but keep messages that are still on their way; they can be taken afterwards."""
        connection = self.client._connection
        connection.drain(self._interest)
        try:
            yield from self.client._flushing(timeout)
        finally:
            connection.forget(self._interest)
            self._on_end()
