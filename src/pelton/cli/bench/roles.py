"""The roles of a load for the commands: their errors, and the messages to publish.

The code that runs for each message is compiled (``core/load/roles``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.client.base.answers import decode_pub_ack
from pelton.client.consume.pull import pull_body, status_error
from pelton.core.bulk.publish_window import PublishWindow
from pelton.core.load import roles as core
from pelton.core.protocol.wire import decode_headers
from pelton.errors import NoRespondersError, PeltonError

from .links import NEVER, Role
from .supply import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.load.roles import Requests

    from .links import Link
    from .supply import Pace, Supply

WINDOW_BYTES = 64 * 1024 * 1024
EXPIRES_NS = 30_000_000_000


class Flood(Role):
    """Publishes as fast as the server takes it; the end is when the server has handled all."""

    def __init__(self, link: Link, supply: Supply, quota: int, pace: Pace) -> None:
        """``supply``: the messages to publish."""
        super().__init__(link, quota)
        self._supply = supply
        self._pace = pace

    def turn(self, now: int) -> int:
        """Write a chunk."""
        self.start_ns = self.start_ns or now
        if self.link.blocked:
            return NEVER
        left = self.quota - self.done
        if not left:
            self.ping()
            return NEVER
        if not (count := self._pace.allowed(self.done, left, now)):
            return self._pace.due(self.done)
        data, made = self._supply.take(count)
        self.done += (
            made  # before the write: an interrupt behind it must not forget messages that arrived
        )
        self.link.write(data)
        self._pace.sent(now)
        return now


def refusing(subject: str) -> Callable[[bytes, bytes], None]:
    """Raises the error that an answer tells to a request on this subject."""

    def refuse(block: bytes, payload: bytes) -> None:
        if not block:
            decode_pub_ack(payload)  # raises the refusal
            raise PeltonError(f"{subject}: {payload[:200]!r}")
        status, description, _ = decode_headers(block)
        if status == 503:
            raise NoRespondersError(subject)
        raise PeltonError(f"{subject}: {description} ({status})")

    return refuse


def ask(
    link: Link,
    quota: int,
    subject: str,
    requests: Requests,
    pace: Pace,
    *,
    window: int = 1,
    api: bool = False,
) -> Role:
    """Sends requests, each with one answer; ``api``: that is JSON, in which the server may refuse."""
    refuse = refusing(subject)
    return core.Ask(link, quota, requests, pace, window=window, api=api, refuse=refuse)


def ask_batches(
    link: Link,
    quota: int,
    subject: str,
    body: Callable[[int, int], bytes],
    pace: Pace,
    *,
    batch: int,
) -> Role:
    """Sends requests with many answers. ``body``: of one, for the last sequence so far and how many are wanted."""
    last = 0

    def request(wanted: int) -> bytes:
        return body(last, wanted)

    def ended(block: bytes) -> None:
        nonlocal last
        status, _, headers = decode_headers(block)
        if status != 204:
            refusing(subject)(block, b"")
        last = int(headers.get("Nats-Last-Sequence", ["0"])[0])

    return core.AskBatches(link, quota, subject, request, pace, batch=batch, ended=ended)


def store(link: Link, supply: Supply, quota: int, pace: Pace, *, window: int) -> Role:
    """Publishes into a stream with so many messages in flight; ``supply`` has ``link.inbox.`` as its reply."""
    first = supply.number

    def refuse(operation: bytes, block: bytes, payload: bytes) -> None:
        if block and decode_headers(block)[0] == 503:
            raise NoRespondersError(operation.split(b" ", 2)[1].decode("utf-8", "replace"))
        decode_pub_ack(payload)  # raises the refusal
        raise PeltonError(f"not an ack: {payload[:200]!r}")

    return core.Store(
        link,
        quota,
        PublishWindow(supply.encoder, window, WINDOW_BYTES),
        lambda sent: supply.rows_from(first + sent),
        pace,
        chunk=CHUNK,
        refuse=refuse,
    )


def pull(
    link: Link,
    subject: str,
    quota: int,
    *,
    batch: int,
    overlapped: bool,
    acks: str,
    confirmed: bool,
    sleep_ns: int = 0,
) -> Role:
    """Pulls the messages of a consumer, and acknowledges them. ``subject``: of the pull requests."""

    def ended(block: bytes) -> int:
        status, description, headers = decode_headers(block)
        error = status_error(status, description, subject)
        if error is not None and status not in (404, 408):
            raise error
        left = headers.get("Nats-Pending-Messages", [""])[0]
        return int(left) if left.isdigit() else -1

    return core.Pull(
        link,
        quota,
        subject,
        lambda count: pull_body(count, expires_ns=EXPIRES_NS),
        batch=batch,
        overlapped=overlapped,
        acks=acks,
        confirmed=confirmed,
        ended=ended,
        sleep_ns=sleep_ns,
    )
