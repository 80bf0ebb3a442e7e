"""Publishing into streams with many outstanding acks: a bounded window of messages.

Each message is published with a reply subject ``<inbox>.<token>``; the random token identifies its entry
when the ack arrives. When the ack does not arrive in time, the message is sent again only if it has a
message id, because then the stream stores it once, however often it is sent. Without an id it fails,
because it is unknown whether it is stored.

When no stream answers (503), the message is not stored and fails at once. But in a cluster the stream
may only be without a leader for some seconds: there the message is sent again every RETRY_S until its
time is over, and no other message is sent before it. The same is done with a message whose first copy
the stream is still storing.

``Window`` keeps the messages; the caller passes time in (seconds of a monotonic clock). ``PublisherBase`` has
what the publishers of both halves do without waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    NoRespondersError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
)

from .base.answers import decode_pub_ack
from .base.arguments import check_number
from .base.mailbox import RETRY_S, Interest, Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base.durations import Duration
    from .base.message import BaseMessage
    from .base.models import PubAck

IN_PROCESS = 10158
"""Error code: a message with this id is being stored, and its first copy has no majority yet."""


class Pending:
    """A message whose ack is outstanding; ``waiter`` is a future in asyncio, None in blocking code."""

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
        """Published now for the first time."""
        self.subject = subject
        self.payload = payload
        self.headers = headers
        self.msg_id = msg_id
        self.reply = reply
        self.waiter = waiter
        self.attempts = 1
        self.deadline = 0.0
        # The last refusal, while the message waits to be sent again.
        self.refused: PeltonError | None = None


class Window:
    """The messages that wait for an ack, in order of their deadlines."""

    def __init__(
        self,
        inbox: str,
        token: Callable[[], str],
        size: int,
        timeout_s: float,
        attempts_max: int,
    ) -> None:
        """``inbox``: the acks arrive one level below it. ``token`` returns what nobody can guess."""
        check_number("window", size, least=1)
        check_number("attempts_max", attempts_max, least=1)
        self.inbox = inbox
        self._token = token
        self.size = size
        self._timeout_s = timeout_s
        self._attempts_max = attempts_max
        self._pending: dict[str, Pending] = {}
        self._refused: dict[str, Pending] = {}  # wait to be sent again
        self._retry_at = 0.0

    def __len__(self) -> int:
        """The number of outstanding acks."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        """Whether the client must wait for an ack before it sends another message."""
        # Nothing new may overtake a message that is to be sent again.
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
        """Add a message that is sent now, with the ``reply`` of the returned entry."""
        reply = f"{self.inbox}.{self._token()}"
        entry = Pending(subject, payload, headers, msg_id, reply, waiter)
        entry.deadline = now + self._timeout_s
        self._pending[reply] = entry
        return entry

    def drop(self, entry: Pending) -> None:
        """Remove the entry of a message that could not be sent."""
        self._pending.pop(entry.reply, None)
        self._refused.pop(entry.reply, None)

    def give_up(self) -> list[Pending]:
        """Remove and return every entry, oldest first: no ack follows."""
        entries = list(self._pending.values())
        self._pending.clear()
        self._refused.clear()
        return entries

    def settle(self, message: BaseMessage) -> tuple[Pending, PubAck | PeltonError] | None:
        """Take an answer; returns its entry and the ack or error, None for an unknown one.

        The caller passes an error to ``bear``.
        """
        entry = self._pending.get(message.subject)
        if entry is None:
            return None
        if message.status == 503:
            return entry, NoRespondersError(entry.subject)
        try:
            outcome = decode_pub_ack(message.data)
        except PeltonError as error:
            return entry, error
        self.drop(entry)
        return entry, outcome

    def bear(self, entry: Pending, error: PeltonError, now: float, *, clustered: bool) -> bool:
        """Whether the message is sent again after an error that says that it is not stored yet;
        else it failed.
        """
        passing = clustered and isinstance(error, NoRespondersError)
        passing |= isinstance(error, ApiError) and error.err_code == IN_PROCESS
        if not passing or now >= self._patient_until(entry):
            self.drop(entry)
            return False
        # One moment for all that are refused: they are sent again together, in their order.
        if not self._refused:
            self._retry_at = now + RETRY_S
        self._refused[entry.reply] = entry
        entry.refused = error
        return True

    def forbidden(self, complaint: PermissionsViolationError) -> list[Pending]:
        """Remove and return the entries that this error of the server concerns, oldest first."""
        refused = [
            entry for entry in self._pending.values() if f'"{entry.subject}"' in complaint.text
        ]
        for entry in refused:
            self.drop(entry)
        return refused

    def _patient_until(self, entry: Pending) -> float:
        # A refused message is known not to be stored, so it may be sent again without an id, within its time.
        left = self._attempts_max - entry.attempts if entry.msg_id else 0
        return entry.deadline + left * self._timeout_s

    def next_deadline(self) -> float | None:
        """When the oldest entry is overdue, or when refused entries are to be sent again."""
        # The first one only: entries are in the order of their deadlines.
        for entry in self._pending.values():
            return min(entry.deadline, self._retry_at) if self._refused else entry.deadline
        return None

    def seconds_left(self, now: float) -> float:
        """The time until ``next_deadline``; 0 without one."""
        deadline = self.next_deadline()
        return 0.0 if deadline is None else max(0.0, deadline - now)

    def overdue(self, now: float, lost: bool = False) -> tuple[list[Pending], list[Pending]]:
        """(to send again, failed) of the overdue entries; of all when the connection was ``lost``."""
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
                continue  # it is sent again soon, or already was
            if entry.msg_id and entry.attempts < self._attempts_max:
                self._begin_attempt(entry, now)
                again.append(entry)
            # Lost without an id: its ack may still come over the new connection, so its time is not over yet.
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
        # Added again below: a dict that is changed in place would keep its old order.
        del self._pending[entry.reply]
        entry.attempts += 1
        entry.deadline = now + self._timeout_s
        self._pending[entry.reply] = entry

    def why_failed(self, entry: Pending) -> PeltonError:
        """The error of an overdue entry."""
        if entry.refused is not None:
            return entry.refused
        return PeltonTimeoutError(
            f"no ack from a stream for {entry.subject!r} in {self._timeout_s} s, "
            f"{entry.attempts} attempts"
        )


class PublisherBase(Mailbox):
    """The state of a publisher, and what it does with acks and overdue messages; nothing here waits."""

    def __init__(
        self,
        js: Any,
        *,
        window: int = 1024,
        timeout: Duration | None = None,
        attempts_max: int = 3,
    ) -> None:
        """Made by ``JetStream.publisher``."""
        client = js.client
        seconds = js._seconds_of(timeout)
        self.client = client
        self.acked = 0
        """The number of messages that a stream has acknowledged."""
        self.duplicates = 0
        """The number of acknowledged messages that the stream had already."""
        self.last_ack: PubAck | None = None
        """The newest ack."""
        self.failures: list[tuple[str, str, Exception]] = []
        """Subject, message id and error of each message that failed since the last ``flush``."""
        self._interest: Interest
        self._connection = client._connection
        self._clock = client._clock
        self._lost = False  # whether the connection broke since the last look
        inbox = client.new_inbox()
        self._window = Window(inbox, client._tokens.next, window, seconds, attempts_max)
        self._patience = seconds * attempts_max
        client._attach(f"{inbox}.*", self)
        client._watchers.add(self)

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """An ack arrived."""
        settled = self._window.settle(message)
        if settled is None:
            return
        entry, outcome = settled
        if isinstance(outcome, PeltonError):
            clustered = self.client.clustered
            if self._window.bear(entry, outcome, self._clock(), clustered=clustered):
                self._sooner()
                self._stir()
            else:
                self._fail(entry, outcome)
            return
        self.acked += 1
        self.duplicates += outcome.duplicate
        self.last_ack = outcome
        waiter = entry.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)
        if self._waiting:
            self._stir()

    def _on_end(self) -> None:
        """The client is closed: no ack follows."""
        why = f": {self._interest.failure}" if self._interest.failure else ""
        for entry in self._window.give_up():
            self._fail(
                entry, ConnectionClosedError(f"the client was closed before the ack came{why}")
            )

    def _on_lost(self, error: PeltonError) -> None:  # every error is handled alike
        """The connection broke: the next look sends again what may be sent twice."""
        self._lost = True
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit a publish."""
        for entry in self._window.forbidden(complaint):
            self._fail(entry, complaint)

    def _fail(self, entry: Pending, error: Exception) -> None:
        self.failures.append((entry.subject, entry.msg_id, error))
        waiter = entry.waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
            waiter.exception()  # marks it as retrieved: the error is also in `failures`
        self._stir()

    def _sooner(self) -> None:
        """The next deadline is earlier than before."""

    # -- called by the publishers of both halves ---------------------------------------------------

    def _put(self, subject: str, data: bytes, block: bytes, msg_id: str, waiter: Any) -> None:
        """Send a message; the window has room."""
        entry = self._window.add(subject, data, block, msg_id, self._clock(), waiter)
        try:
            self._connection.publish(subject, data, entry.reply, block, sound_reply=True)
        except PeltonError:
            self._window.drop(entry)
            raise

    def _look(self) -> None:
        """Send again, or give up, messages that are overdue or were sent over a broken connection."""
        now, deadline = self._clock(), self._window.next_deadline()
        if not self._lost and (deadline is None or now < deadline):
            return
        lost, self._lost = self._lost, False
        again, failed = self._window.overdue(now, lost)
        for entry in again:
            try:
                self._connection.publish(entry.subject, entry.payload, entry.reply, entry.headers)
            except OutputFullError:
                continue  # it stays in the window, and is sent again at its new deadline
            except PeltonError as error:
                self._window.drop(entry)
                self._fail(entry, error)
        for entry in failed:
            self._fail(entry, self._window.why_failed(entry))
        # Deadlines have moved: a call that waits has to compute its time anew.
        if again:
            self.client._plan_flush()
            self._stir()

    def _close(self) -> None:
        """Stop receiving acks."""
        self.client._watchers.discard(self)
        self.client._release(self._interest)
