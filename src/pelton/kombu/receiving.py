"""Pull requests for several queues over one connection, and the deliveries that came.

Each queue has one pull request at a time. It asks for as many messages as the worker can take, so that
no worker holds tasks that another one could begin.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pelton.client.base.mailbox import Interest, Mailbox
from pelton.client.consume.pull import HEARTBEAT, PENDING_MESSAGES, pull_body, status_error
from pelton.client.sync import connect
from pelton.errors import PullError

if TYPE_CHECKING:
    from pelton.client.base.message import BaseMessage
    from pelton.client.protocol.options import Options
    from pelton.client.sync import Client
    from pelton.errors import PeltonError

EXPIRES_NS = 30_000_000_000
UNLIMITED = 256
"""Messages to ask for when the worker sets no limit."""


class Inbox(Mailbox):
    """The messages of one consumer, or of one broadcast subject, that nobody has taken yet."""

    def __init__(self, client: Client, queue: str, subject: str, rank: int) -> None:
        """``subject`` is that of pull requests, "" for broadcasts; a higher ``rank`` is first."""
        self.client = client
        self.queue = queue
        self.subject = subject
        self.rank = rank
        self._interest: Interest
        self.arrived: deque[BaseMessage] = deque()
        self.replies = client._new_replies()
        self._asked = 0
        self.requested = 0
        self.failed: PeltonError | None = None

    def _on_message(self, message: BaseMessage) -> None:
        """A delivery, or the status of a pull request."""
        subject, replies = message.subject, self.replies
        if subject.startswith(replies.prefix) and not replies.number_of(subject):
            return  # somebody else published to the inbox
        status = message.status if message.raw_headers else 0
        if status == 0:
            self.requested = max(0, self.requested - 1)
            self.arrived.append(message)
        elif status != HEARTBEAT:
            left = message.header(PENDING_MESSAGES)
            self.requested = max(0, self.requested - int(left)) if left else 0
            error = status_error(status, message.description, self.subject)
            if error is not None and not (isinstance(error, PullError) and _passes(error)):
                self.failed = error

    def _on_end(self) -> None:
        """No message follows."""

    @property
    def changed(self) -> bool:
        """Whether there is something to do: a message, an error, or a request that is over."""
        return bool(self.arrived or self.failed or (self.subject and not self.requested))

    def ask(self, count: int) -> None:
        """Ask for messages, unless the last request is open."""
        if not self.subject or self.requested or self.arrived or count < 1:
            return
        self.requested = count
        self._asked += 1
        reply = self.replies.subject(self._asked)
        self.client.publish(self.subject, pull_body(count, expires_ns=EXPIRES_NS), reply=reply)


def _passes(error: PullError) -> bool:
    return str(error).lower().find("leadership change") >= 0


class Receiver:
    """The queues that the channels of one connection consume from."""

    def __init__(self, connection: Options) -> None:
        """Connects."""
        self._client = connect(connection)
        self._inboxes: list[Inbox] = []
        self._turn = 0
        self._alarm = Inbox(self._client, "", "", 0)
        self.alarm = self._alarm.replies.subject(1)
        """A message to this subject ends a wait: an ack has made room."""
        self._client._attach(self.alarm, self._alarm)

    def close(self) -> None:
        """Close the connection. The server delivers messages that were not taken to another worker."""
        self._client.close()

    def consume(self, queue: str, pulls: list[tuple[str, int]]) -> None:
        """Begin with a queue: the subjects of its pull requests, with their ranks."""
        for subject, rank in pulls:
            inbox = Inbox(self._client, queue, subject, rank)
            self._client._attach(inbox.replies.pattern, inbox)
            self._inboxes.append(inbox)

    def listen(self, queue: str, subject: str) -> None:
        """Begin with a queue that gets broadcasts."""
        inbox = Inbox(self._client, queue, "", 0)
        self._client._attach(subject, inbox)
        self._inboxes.append(inbox)

    def cancel(self, queue: str) -> list[BaseMessage]:
        """End with a queue; returns the deliveries that nobody took."""
        left: list[BaseMessage] = []
        for inbox in [each for each in self._inboxes if each.queue == queue]:
            self._inboxes.remove(inbox)
            left += inbox.arrived
            if not self._client.closed:
                self._client._release(inbox._interest)
        if not self._client.closed:
            self._client.flush()  # the server has ended the pull requests before anything is given back
        return left

    def waiting(self) -> list[BaseMessage]:
        """The deliveries that nobody has taken yet; any thread may ask."""
        return [message for inbox in list(self._inboxes) for message in list(inbox.arrived)]

    def next(self, rooms: dict[str, int | None], seconds: float) -> tuple[str, BaseMessage] | None:
        """The next message of some queues, with its queue; None when none came in time.

        ``rooms``: how many messages the worker can take from each queue, None for any number.
        """
        inboxes = [each for each in self._inboxes if each.queue in rooms]
        if found := self._take(inboxes):
            return found
        for inbox in inboxes:
            room = rooms[inbox.queue]
            inbox.ask(UNLIMITED if room is None else max(1, room // len(inboxes)))
        self._client.wait_until(
            lambda: bool(self._alarm.arrived) or any(each.changed for each in inboxes), seconds
        )
        self._alarm.arrived.clear()
        return self._take(inboxes)

    def _take(self, inboxes: list[Inbox]) -> tuple[str, BaseMessage] | None:
        """The first message of the highest rank; queues of one rank take turns."""
        self._turn += 1
        best: Inbox | None = None
        for number in range(len(inboxes)):
            inbox = inboxes[(number + self._turn) % len(inboxes)]
            if inbox.failed is not None:
                raise inbox.failed
            if inbox.arrived and (best is None or inbox.rank > best.rank):
                best = inbox
        return None if best is None else (best.queue, best.arrived.popleft())
