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

Time is handed in (seconds of a monotonic clock). Knows nothing of transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ApiError, NoResponders, PenstockError, PermissionsViolation, Timeout

from .jetstream import decode_pub_ack

if TYPE_CHECKING:
    from .message import BaseMessage
    from .models import PubAck

RETRY_S = 0.25
"""A stream of a cluster that did not answer is asked again after so long."""
IN_PROCESS = 10158
"""A message with this id is being stored: it came again before its first copy had a majority."""


class Pending:
    """A message whose ack is outstanding; ``waiter`` is the shell's."""

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
