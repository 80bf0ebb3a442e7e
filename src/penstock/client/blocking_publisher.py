"""Publishing into streams with many acks outstanding, for blocking code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.errors import ClientInUse, PenstockError, PermissionsViolation, PublishFailed

from .blocking_guard import exclusive
from .jetstream import Headers, publish_headers
from .publishing import Pending, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from .blocking import BlockingClient
    from .connection import Interest
    from .message import BaseMessage
    from .models import PubAck

OUTPUT_BYTES = 64 * 1024  # written in blocks of this size


class Publisher:
    """Publishes into streams with a bounded window of outstanding acks.

    Made by ``JetStream.publisher``. A message that is not acknowledged in time is sent again if it
    has a message id, and fails otherwise; one that no stream of a cluster answers is sent again
    until then. Failures are collected in ``failures`` and raised as PublishFailed by ``flush`` and
    at the end of ``with``.
    """

    def __init__(
        self, client: BlockingClient, window: int, timeout: float, attempts_max: int
    ) -> None:
        """``timeout`` in seconds, for one attempt."""
        self.client = client
        self.guard = client.guard
        self.acked = 0
        """Messages that a stream has acknowledged."""
        self.duplicates = 0
        """How many of them the stream already had."""
        self.last_ack: PubAck | None = None
        self.failures: list[tuple[str, str, Exception]] = []
        self.interest: Interest
        inbox = self.client.new_inbox()
        self._window = Window(inbox, window, timeout, attempts_max)
        self._patience = timeout * attempts_max
        self._reconnects = self.client.reconnects
        self._complaint = self.client.last_error
        self.client.attach(f"{inbox}.*", self)

    def __enter__(self) -> Publisher:
        """The publisher itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for every ack; PublishFailed when some did not come."""
        try:
            if kind is None:
                self.flush()
        finally:
            if not self.client.closed:
                self.client.connection.unsubscribe(self.interest)

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
    ) -> None:
        """Queue a message; waits only when the window is full.

        Queued bytes go out in blocks, when the window is full and on ``flush``.
        """
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        if not self.guard.take(False):
            raise ClientInUse
        try:
            client = self.client
            if self._window.full:
                self._wait(lambda: not self._window.full)
            elif client.connection.bytes_waiting > OUTPUT_BYTES or client.lost_since(
                self._reconnects
            ):
                client.flush_output()
                self._look()
            entry = self._window.add(subject, data, block, msg_id or "", time.monotonic())
            try:
                client.connection.publish(subject, data, entry.reply, block)
            except PenstockError:
                self._window.drop(entry)
                raise
        finally:
            self.guard.give()

    @exclusive
    def flush(self) -> None:
        """Wait until every message is acknowledged or has failed; PublishFailed tells which failed
        since the last time.
        """
        self._wait(lambda: not self._window)
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailed(failures)

    def receive(self, message: BaseMessage) -> None:
        """The client hands over an ack."""
        settled = self._window.settle(message)
        if settled is None:
            return
        entry, outcome = settled
        if isinstance(outcome, PenstockError):
            clustered = bool(self.client.server_info.cluster)
            if not self._window.bear(entry, outcome, time.monotonic(), clustered=clustered):
                self._fail(entry, outcome)
            return
        self.acked += 1
        self.duplicates += outcome.duplicate
        self.last_ack = outcome

    def end(self) -> None:
        """The client is closed: nothing more is acknowledged."""

    def _fail(self, entry: Pending, error: Exception) -> None:
        self.failures.append((entry.subject, entry.msg_id, error))

    def _wait(self, done: Callable[[], bool]) -> None:
        while not done():
            deadline = self._window.next_deadline()
            left = 0.0 if deadline is None else max(0.0, deadline - time.monotonic())
            refused = self._window.refused

            def over(refused: bool = refused) -> bool:
                return (
                    done()
                    or (self._window.refused and not refused)
                    or self.client.lost_since(self._reconnects)
                    or self.client.last_error is not self._complaint
                )

            self.client.wait_until(over, left)
            self._look()

    def _look(self) -> None:
        """Send again or give up what is overdue, or was under way when the connection broke; give
        up what the server said may not be published.
        """
        complaint = self._complaint
        self._complaint = self.client.last_error
        if self._complaint is not complaint and isinstance(self._complaint, PermissionsViolation):
            for entry in self._window.forbidden(self._complaint):
                self._fail(entry, self._complaint)
        lost = self.client.lost_since(self._reconnects)
        if lost:
            self.client.ensure_open(self._patience)
            self._reconnects = self.client.reconnects
        again, failed = self._window.overdue(time.monotonic(), lost)
        for entry in again:
            self.client.connection.publish(entry.subject, entry.payload, entry.reply, entry.headers)
        for entry in failed:
            self._fail(entry, self._window.why_failed(entry))
