"""Publishing into streams with many acknowledgements outstanding: the bookkeeping of a bounded
window.

Each message is published with a reply subject ``<inbox>.<number>``; the number finds its entry when
the ack comes. An entry whose ack does not come in time is sent again only if it carries a message
id, for then the stream keeps the message once however often it is sent; without an id it fails,
because nobody can know whether it was stored.

Where no stream answers (503) the message is not stored, and fails at once. But in a cluster that may
only mean that its stream has no leader for some seconds: there it is sent again every RETRY_S, until
its time is over, and no other message goes out before. So it is done with a message whose first copy
is still being stored.

``Window`` is that bookkeeping, ``Publishing`` what both publishers do with it. Time is handed in
(seconds of a monotonic clock). Knows nothing of transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import (
    ApiError,
    ConnectionClosed,
    NoResponders,
    OutputFull,
    PenstockError,
    PermissionsViolation,
    PublishFailed,
    Timeout,
)

from .jetstream import decode_pub_ack
from .steps import Mailbox, Ready, Until, call

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Interest
    from .durations import Duration
    from .message import BaseMessage
    from .models import PubAck
    from .steps import Steps
    from .streams import Streams

RETRY_S = 0.25
"""A stream of a cluster that did not answer is asked again after so long."""
IN_PROCESS = 10158
"""A message with this id is being stored: it came again before its first copy had a majority."""


class Pending:
    """A message whose ack is outstanding; ``waiter`` is the shell's, a future or None."""

    __slots__ = (
        "attempts",
        "deadline",
        "headers",
        "msg_id",
        "payload",
        "refused",
        "reply",
        "subject",
        "waiter",
    )

    def __init__(
        self, subject: str, payload: bytes, headers: bytes, msg_id: str, reply: str, waiter: Any
    ) -> None:
        """Published now, for the first time."""
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.msg_id = msg_id
        self.reply = reply
        self.waiter = waiter
        self.attempts = 1
        self.deadline = 0.0
        self.refused: PenstockError | None = None  # the last time, and waits to be sent again


class Window:
    """The messages that wait for an ack, oldest deadline first."""

    def __init__(self, inbox: str, size: int, timeout_s: float, attempts_max: int) -> None:
        """``inbox``: where the acks are received, one level down."""
        if size < 1:
            raise ValueError(f"a window has room for at least one message, got {size}")
        self.inbox = inbox
        self.size = size
        self._timeout_s = timeout_s
        self._attempts_max = attempts_max
        self._number = 0
        self._pending: dict[str, Pending] = {}
        self._refused: dict[str, Pending] = {}  # wait until they are sent again
        self._retry_at = 0.0

    def __len__(self) -> int:
        """How many acks are outstanding."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        """Whether an ack must come before another message may go."""
        return len(self._pending) >= self.size or bool(self._refused)

    @property
    def refused(self) -> bool:
        """Whether messages wait because their stream did not answer."""
        return bool(self._refused)

    def add(
        self,
        subject: str,
        payload: bytes,
        headers: bytes,
        msg_id: str,
        now: float,
        waiter: Any = None,
    ) -> Pending:
        """A message goes out now, with ``reply`` of the returned entry."""
        self._number += 1
        reply = f"{self.inbox}.{self._number}"
        entry = Pending(subject, payload, headers, msg_id, reply, waiter)
        entry.deadline = now + self._timeout_s
        self._pending[reply] = entry
        return entry

    def drop(self, entry: Pending) -> None:
        """The message could not be sent after all."""
        self._pending.pop(entry.reply, None)
        self._refused.pop(entry.reply, None)

    def give_up(self) -> list[Pending]:
        """Nothing is acknowledged any more: every entry, oldest first."""
        entries = list(self._pending.values())
        self._pending.clear()
        self._refused.clear()
        return entries

    def settle(self, message: BaseMessage) -> tuple[Pending, PubAck | PenstockError] | None:
        """An answer came: its entry and the ack or error; None for one nobody waits for. An error is
        to be handed to ``bear``.
        """
        entry = self._pending.get(message.subject)
        if entry is None:
            return None
        if message.status == 503:
            return entry, NoResponders(entry.subject)
        try:
            outcome = decode_pub_ack(message.data)
        except PenstockError as error:
            return entry, error
        self.drop(entry)
        return entry, outcome

    def bear(self, entry: Pending, error: PenstockError, now: float, *, clustered: bool) -> bool:
        """Whether the message is sent again, after an answer that says that it is not stored yet. Else
        it has failed.
        """
        passing = clustered and isinstance(error, NoResponders)
        passing |= isinstance(error, ApiError) and error.err_code == IN_PROCESS
        if not passing or now >= self._patient_until(entry):
            self.drop(entry)
            return False
        if not self._refused:
            self._retry_at = now + RETRY_S
        self._refused[entry.reply] = entry
        entry.refused = error
        return True

    def forbidden(self, complaint: PermissionsViolation) -> list[Pending]:
        """The entries that the server has refused with this, oldest first: no ack will come."""
        refused = [
            entry for entry in self._pending.values() if f'"{entry.subject}"' in complaint.text
        ]
        for entry in refused:
            self.drop(entry)
        return refused

    def _patient_until(self, entry: Pending) -> float:
        left = self._attempts_max - entry.attempts if entry.msg_id else 0
        return entry.deadline + left * self._timeout_s

    def next_deadline(self) -> float | None:
        """When the oldest entry is overdue, or those that were refused are to be sent again."""
        for entry in self._pending.values():
            return min(entry.deadline, self._retry_at) if self._refused else entry.deadline
        return None

    def overdue(self, now: float, lost: bool = False) -> tuple[list[Pending], list[Pending]]:
        """(to send again, failed) among the overdue entries; among all of them when the connection
        was ``lost``.
        """
        again: list[Pending] = []
        failed: list[Pending] = []
        if self._refused and (lost or now >= self._retry_at):
            self._try_again(now, again, failed)
        sent = {entry.reply for entry in again}
        for entry in list(self._pending.values()):
            late = entry.deadline <= now
            if not (late or lost):
                break
            if entry.refused or entry.reply in sent:
                continue  # its turn comes soon, or has come
            if entry.msg_id and entry.attempts < self._attempts_max:
                self._begin_attempt(entry, now)
                again.append(entry)
            elif late:
                del self._pending[entry.reply]
                failed.append(entry)
        return again, failed

    def _try_again(self, now: float, again: list[Pending], failed: list[Pending]) -> None:
        waiting, self._refused = self._refused, {}
        for entry in waiting.values():
            if now >= self._patient_until(entry):
                del self._pending[entry.reply]
                failed.append(entry)
                continue
            if entry.deadline <= now:
                self._begin_attempt(entry, now)
            entry.refused = None
            again.append(entry)

    def _begin_attempt(self, entry: Pending, now: float) -> None:
        del self._pending[entry.reply]
        entry.attempts += 1
        entry.deadline = now + self._timeout_s
        self._pending[entry.reply] = entry

    def why_failed(self, entry: Pending) -> PenstockError:
        """Of an entry that was overdue."""
        if entry.refused is not None:
            return entry.refused
        return Timeout(
            f"no ack from a stream for {entry.subject!r} in {self._timeout_s} s, "
            f"{entry.attempts} attempts"
        )


class Publishing(Mailbox):
    """Publishes into streams with a bounded window of outstanding acks."""

    def __init__(
        self,
        js: Streams[Any],
        *,
        window: int = 1024,
        timeout: Duration | None = None,
        attempts_max: int = 3,
    ) -> None:
        """A publisher with up to ``window`` acks outstanding, ``timeout`` for one attempt; use it in
        ``with`` or ``async with``.
        """
        client = js.client
        seconds = js.seconds_of(timeout)
        self.client = client
        self.acked = 0
        """Messages that a stream has acknowledged."""
        self.duplicates = 0
        """How many of them the stream already had."""
        self.last_ack: PubAck | None = None
        self.failures: list[tuple[str, str, Exception]] = []
        self.interest: Interest
        self._connection = client.connection
        self._clock = client.clock
        self._patience = seconds * attempts_max
        self._lost = False  # the connection, since it was last looked
        inbox = client.new_inbox()
        self._window = Window(inbox, window, seconds, attempts_max)
        client.attach(f"{inbox}.*", self)
        client.watchers.add(self)

    # -- called by the client ----------------------------------------------------------------------

    def receive(self, message: BaseMessage) -> None:
        """An ack came."""
        settled = self._window.settle(message)
        if settled is None:
            return
        entry, outcome = settled
        if isinstance(outcome, PenstockError):
            clustered = self.client.clustered
            if self._window.bear(entry, outcome, self._clock(), clustered=clustered):
                self._sooner()
                self.stir()
            else:
                self._fail(entry, outcome)
            return
        self.acked += 1
        self.duplicates += outcome.duplicate
        self.last_ack = outcome
        waiter = entry.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)
        if self.waiting:
            self.stir()

    def end(self) -> None:
        """The client is closed: nothing more is acknowledged."""
        why = f": {self.interest.failure}" if self.interest.failure else ""
        for entry in self._window.give_up():
            self._fail(entry, ConnectionClosed(f"the client was closed before the ack came{why}"))

    def lost(self, error: PenstockError) -> None:  # what broke does not matter
        """The connection broke: what may be sent twice is sent again when it is looked next."""
        self._lost = True
        self.stir()

    def refused(self, complaint: PermissionsViolation) -> None:
        """The server says that something may not be published."""
        for entry in self._window.forbidden(complaint):
            self._fail(entry, complaint)

    def _fail(self, entry: Pending, error: Exception) -> None:
        self.failures.append((entry.subject, entry.msg_id, error))
        waiter = entry.waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
            waiter.exception()  # told: whoever does not await it finds it in `failures`
        self.stir()

    def _sooner(self) -> None:
        """There is something to look after earlier than before."""

    # -- called by the shell -----------------------------------------------------------------------

    def _put(self, subject: str, data: bytes, block: bytes, msg_id: str, waiter: Any) -> None:
        """A message goes out; there is room in the window."""
        entry = self._window.add(subject, data, block, msg_id, self._clock(), waiter)
        try:
            self._connection.publish(subject, data, entry.reply, block, sound_reply=True)
        except PenstockError:
            self._window.drop(entry)
            raise

    def _look(self) -> None:
        """Send again or give up what is overdue, or was under way when the connection broke."""
        now, deadline = self._clock(), self._window.next_deadline()
        if not self._lost and (deadline is None or now < deadline):
            return
        lost, self._lost = self._lost, False
        again, failed = self._window.overdue(now, lost)
        for entry in again:
            try:
                self._connection.publish(entry.subject, entry.payload, entry.reply, entry.headers)
            except OutputFull:
                continue  # stays in the window, and is sent again at its new deadline
            except PenstockError as error:
                self._window.drop(entry)
                self._fail(entry, error)
        for entry in failed:
            self._fail(entry, self._window.why_failed(entry))
        if again:
            self.client.plan_flush()
            self.stir()

    def _settling(self, done: Callable[[], bool]) -> Steps[None]:
        while not done():
            deadline = self._window.next_deadline()
            left = 0.0 if deadline is None else max(0.0, deadline - self._clock())
            refused = self._window.refused

            def over(refused: bool = refused) -> bool:
                return done() or self._lost or (self._window.refused and not refused)

            yield Until(self, over, left)
            if self._lost:
                yield Ready(self._patience)
            self._look()

    def _making_room(self) -> Steps[None]:
        return self._settling(lambda: not self._window.full)

    def flushing(self) -> Steps[None]:
        """Wait until every message is acknowledged or has failed; PublishFailed tells which failed
        since the last time.
        """
        yield from self._settling(lambda: not self._window)
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailed(failures)

    flush = call(flushing)

    def _leaving(self, kind: type[BaseException] | None) -> Steps[None]:
        """The end of the block: wait for every ack; PublishFailed when some did not come."""
        try:
            if kind is None:
                yield from self.flushing()
        finally:
            self._close()

    def _close(self) -> None:
        """Receive no more acks."""
        self.client.watchers.discard(self)
        self.client.release(self.interest)
